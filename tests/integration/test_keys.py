"""SGLang's own arguments with the plugin's hooks in force: what they show of the keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from jetspec_sglang import embedded
from jetspec_sglang.hooks.keys import HIDDEN
from tests.integration.conftest import HOST

PROGRAM = """
import json, sys
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.server_args import prepare_server_args
given = prepare_server_args(sys.argv[1:])
shown = given.resolved_dict()
print(json.dumps([given.launch_command, shown["api_key"], shown["admin_api_key"], given.admin_api_key]))
"""


@pytest.mark.full
def test_keys_are_hidden_and_still_in_force() -> None:
    flags = ["--model-path", str(embedded.target_path()), "--device", "cpu"]
    keys = ["--api-key", "of-clients", "--admin-api-key=of-the-controller"]
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *flags, *keys]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **HOST})
    assert ran.returncode == 0, ran.stderr[-2000:]
    line, api_key, admin_key, in_force = json.loads(ran.stdout.splitlines()[-1])
    assert line.endswith(f"--api-key {HIDDEN} --admin-api-key={HIDDEN}")
    assert (api_key, admin_key) == (HIDDEN, HIDDEN)
    assert in_force == "of-the-controller"
