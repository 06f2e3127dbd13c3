"""Extensions of file names, and which of them are those of programs."""

from __future__ import annotations

from posixpath import basename

CODE_EXTENSIONS = frozenset({
    "asm", "astro", "bash", "bat", "c", "cc", "cjs", "clj", "cljs", "cmake", "cmd", "coffee", "cpp", "cs", "css",
    "csx", "cts", "cu", "cxx", "d", "dart", "dockerfile", "elm", "erl", "ex", "exs", "fish", "fs", "fsx", "gd",
    "glsl", "go", "gql", "gradle", "graphql", "groovy", "h", "handlebars", "hbs", "hcl", "hh", "hpp", "hrl", "hs",
    "htm", "html", "hxx", "ipynb", "java", "jl", "js", "json", "json5", "jsonc", "jsx", "kt", "kts", "less", "lisp",
    "lua", "m", "makefile", "md", "mdx", "mjs", "mk", "ml", "mli", "mm", "mts", "nim", "nix", "php", "pl", "pm",
    "prisma", "proto", "ps1", "py", "pyi", "pyx", "r", "rake", "rb", "rs", "s", "sass", "scala", "scm", "scss",
    "sh", "sol", "sql", "svelte", "swift", "tcl", "tf", "toml", "ts", "tsx", "v", "vala", "vb", "vhd", "vue", "wat",
    "xml", "yaml", "yml", "zig", "zsh",
})  # fmt: skip
# Without an extension.
CODE_NAMES = frozenset({"dockerfile", "makefile", "gemfile", "rakefile", "procfile", "justfile", "jenkinsfile"})


def extension_of(path: str) -> str:
    """Return what follows the last dot of a name, without it; empty for `.name` and `name`."""
    stem, dot, extension = basename(path.rstrip("/")).rpartition(".")
    return extension if dot and stem else ""


def is_code(path: str) -> bool:
    """Return whether a file is one of a program, by its name."""
    return extension_of(path).lower() in CODE_EXTENSIONS or basename(path).lower() in CODE_NAMES
