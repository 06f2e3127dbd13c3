"""`python -m tests.images [NAME...]`: ends with 1 unless every image runs as it should (docs/testing.md, Images)."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.cache import CACHE
from tests.images.languages import LANGUAGES
from tests.images.layers import DebianLayers, bare_layer
from tests.images.publish import publish
from tests.images.recipe import Recipe
from tests.images.servers import SERVERS
from tests.images.services import SERVICES
from tests.images.small import SMALL
from tests.images.trial import Result, run_trial
from tests.vm.instances import TestInstance, new_instance
from tests.vmbackend.registry import running_registry

RECIPES = {recipe.name: recipe for recipe in (*SMALL, *SERVERS, *SERVICES, *LANGUAGES)}


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.images", description=__doc__)
    parser.add_argument("name", nargs="*", help="only these images")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--logs", type=Path, help="a folder for the programs' logs")
    given = parser.parse_args()
    if given.list:
        say("\n".join(RECIPES))
        return 0
    if unknown := set(given.name) - set(RECIPES):
        parser.error(f"no such image: {', '.join(sorted(unknown))}")
    recipes = [RECIPES[name] for name in given.name or RECIPES]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # so that nothing stays behind
    folder = Path(tempfile.mkdtemp(prefix="mvi-images-"))
    try:
        results = run_trials(recipes, folder, given.logs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    failed = [result.name for result in results if result.faults]
    say(f"{len(results) - len(failed)} of {len(results)} images run as they should.")
    if failed:
        say(f"Not: {', '.join(failed)}")
    return 1 if failed else 0


def run_trials(recipes: list[Recipe], folder: Path, logs: Path | None) -> list[Result]:
    layers, results = DebianLayers(CACHE / "image-layers"), []
    if any(recipe.bare is None for recipe in recipes):
        layers.prepare()
    with (
        running_registry(folder / "registry") as registry,
        new_instance(images=False, PLATFORM_INSECURE_REGISTRIES=registry) as instance,
    ):
        instance.start()
        for recipe in recipes:
            result = try_recipe(recipe, layers, registry, instance, folder / recipe.name)
            results.append(result)
            report(result)
            if logs:
                logs.mkdir(parents=True, exist_ok=True)
                (logs / f"{recipe.name}.log").write_text(result.log)
    return results


def try_recipe(recipe: Recipe, layers: DebianLayers, registry: str, instance: TestInstance, scratch: Path) -> Result:
    scratch.mkdir()
    begun = time.monotonic()
    try:
        made = layers.make(recipe, scratch) if recipe.bare is None else bare_layer(recipe, scratch)
        image = publish(registry, recipe, made, scratch)
    except Exception as error:
        return Result(recipe.name, faults=[f"the image could not be built: {error}"])
    finally:
        say(f"{recipe.name}: built in {time.monotonic() - begun:.0f} s")
    shutil.rmtree(scratch, ignore_errors=True)
    return run_trial(instance, instance.api(), recipe, image)


def report(result: Result) -> None:
    figures = f"ready after {result.create_seconds:.0f} s, answers {result.answer_seconds:.0f} s later"
    verdict = "NOT as it should" if result.faults else "runs"
    say(f"{result.name}: {verdict}; {figures}, stopped in {result.stop_seconds:.1f} s")
    for line in (*(f"left out: {change}" for change in result.changes), *result.faults):
        say(f"    {line}")


if __name__ == "__main__":
    sys.exit(main())
