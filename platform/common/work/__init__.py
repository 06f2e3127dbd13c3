"""Long work: a row with a claim and a lease, a wake-up that may be lost, threads that accounts share, a guarded end.

Each app decides what a lost claim means: a deploy that has made its release goes live all the same, a
notification is sent at most once, an event at least once. docs/adding-a-resource.md has the recipe.
"""
