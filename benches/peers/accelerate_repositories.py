#!/usr/bin/env python3
"""Accelerates models of public repositories at pinned commits, and compares them with the originals in float64.

Fetches the repositories; their code stays in a temporary folder. Each repository has its own process, as several
have packages of one name. Run by hand, with a network:

    python3 benches/peers/accelerate_repositories.py --commit $(git rev-parse --short HEAD) --out accelerate-repositories.json

`--mirrors` names a folder of bare clones, `owner+name/repo`, that are taken instead of GitHub's. The exit status is 1
where a model differs by more than the limit, where nothing of it was replaced, or where it could not be run.
"""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile

import accelerate_cases as cases
from results import text, write

LIMIT = 1e-9
REQUIREMENTS = ("einops", "opt_einsum")


def main():
    options = arguments()
    if options.one:
        return print(json.dumps(measured(options.one)))
    with tempfile.TemporaryDirectory() as folder:
        install(f"{folder}/requirements", REQUIREMENTS, "--no-deps")
        found = {}
        for case in cases.CASES:
            if options.case and case.name not in options.case.split(","):
                continue
            found[case.name] = run(case, folder, options)
            show(case.name, found[case.name])
    if options.out:
        write(options.out, {**about(options.commit), "repositories": found})
    return 1 if any(not right(models) for models in found.values()) else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mirrors", help="a folder of bare clones, owner+name/repo")
    parser.add_argument("--case", help="names of repositories, by commas; all by default")
    parser.add_argument("--commit", help="the commit that is measured")
    parser.add_argument("--out", help="the file of results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def about(commit):
    torch = importlib.import_module("torch")
    return {
        "commit": commit,
        # Where clones come from makes no difference.
        "command": f"{os.path.basename(__file__)} --commit {commit}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "limit": LIMIT,
    }


def install(folder, packages, *options):
    run_quietly(sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, *options, *packages)


def run_quietly(*words, **options):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **options)


def run(case, folder, options):
    """Fetches what a case needs, and measures its models in a separate process."""
    paths = [f"{folder}/requirements", *(place(source, folder, options) for source in case.sources)]
    environment = os.environ | case.environment | {"PYTHONPATH": os.pathsep.join((*paths, os.environ.get("PYTHONPATH", "")))}
    words = [sys.executable, __file__, "--one", case.name]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    described = {"sources": [source.described() for source in case.sources]}
    if done.returncode:
        return described | {"error": done.stderr.strip().splitlines()[-1]}
    return described | json.loads(done.stdout.splitlines()[-1])


def place(source, folder, options):
    """The folder of a source's code, fetched if it is not there."""
    target = f"{folder}/{source.name.replace('/', '+')}-{source.revision[:12]}"
    if os.path.isdir(target):
        return target
    if source.wheel:
        install(target, [f"{source.name}=={source.revision}"], *source.options)
        return target
    os.makedirs(target)
    clone = f"{target}.git"
    if options.mirrors:
        clone = f"{options.mirrors}/{source.name.replace('/', '+')}/repo"
    else:
        url = f"https://github.com/{source.name}"
        run_quietly("git", "init", "--quiet", "--bare", clone)
        run_quietly("git", f"--git-dir={clone}", "fetch", "--quiet", "--depth=1", url, source.revision)
    archive = ("git", f"--git-dir={clone}", "archive", source.revision, *source.folders)
    with subprocess.Popen(archive, stdout=subprocess.PIPE) as packed:
        run_quietly("tar", "-x", "-C", target, stdin=packed.stdout)
    for name, version in source.versions.items():
        describe(target, name, version, source.entries)
    return target


def describe(target, name, version, entries):
    """Writes what packages ask about their installation: their version and their entry points."""
    folder = f"{target}/{name}-{version}.dist-info"
    os.makedirs(folder)
    for file, said in (
        ("METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
        ("entry_points.txt", entries),
    ):
        with open(f"{folder}/{file}", "w", encoding="utf-8") as opened:
            opened.write(said)


def measured(name):
    measure = importlib.import_module("accelerate_measure")
    case = next(case for case in cases.CASES if case.name == name)
    return {"models": {model.name: measure.measured(model) for model in case.models()}}


def right(found):
    return "error" not in found and all(
        model.get("replaced") and model["largest_difference"] < LIMIT for model in found["models"].values()
    )


def show(name, found):
    print(f"{name}: {'right' if right(found) else 'WRONG'}", flush=True)
    print(text(found), flush=True)


if __name__ == "__main__":
    sys.exit(main())
