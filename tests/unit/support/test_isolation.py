"""What an earlier run left in the cache is not there: controller state, locks, recordings."""

import os
import re
import subprocess
import sys
from pathlib import Path

from jetspec_sglang.cache import cache_dir
from tests.conftest import RECORDINGS, REUSED


def test_this_run_has_a_cache_folder_of_its_own():
    assert cache_dir().name.startswith("jetspec-tests-")
    assert {path.name for path in cache_dir().iterdir() if path.is_symlink()} == set(REUSED)


def test_a_run_sees_models_and_native_code_only_and_leaves_no_folder(tmp_path):
    """In a pytest of its own, beside a cache with everything in it."""
    for name in (*REUSED, "controller", "serve"):
        (tmp_path / "cache" / name).mkdir(parents=True)
    probe = tmp_path / "test_probe.py"
    probe.write_text(
        "import os\n"
        "from jetspec_sglang.cache import cache_dir\n"
        "def test_probe():\n"
        "    print('found', cache_dir(), *sorted(os.listdir(cache_dir())))\n"
        f"    print('recordings', os.environ['{RECORDINGS}'])\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != RECORDINGS}
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-s",
            "-p",
            "tests.conftest",
            "--rootdir",
            tmp_path,
            probe,
        ],
        env={**environment, "JETSPEC_CACHE": str(tmp_path / "cache")},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    [(folder, names)] = re.findall(r"found (\S+) (.*)", ran.stdout)
    assert names.split() == sorted(REUSED)
    assert not Path(folder).exists()
    assert f"recordings {tmp_path / 'cache' / 'tests'}\n" in ran.stdout
