"""Deploys: from a folder in a workspace to a live release. The worker `pages` carries them out."""
