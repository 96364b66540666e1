"""`systemctl` and `systemd-run` that keep properties and timers in files: as much of systemd as the agent talks to."""

import fnmatch
import json
from pathlib import Path
from typing import Any

from tests.support.programs import script

BODY = """
import fnmatch, json, pathlib, sys
folder = pathlib.Path({folder!r})
state = json.loads((folder / "state.json").read_text())
name, *arguments = pathlib.Path(sys.argv[0]).name, *sys.argv[1:]
state["calls"].append([name, *arguments])
flags = [one for one in arguments if one.startswith("--")]
words = [one for one in arguments if not one.startswith("--")]
failing = state["fails"].get(words[0] if words else "", state["fails"].get(name))
out = []
if failing is None and name == "systemd-run":
    unit = next(one for one in flags if one.startswith("--unit=")).partition("=")[2]
    state["timers"][unit + ".timer"] = arguments
elif failing is None and words[0] == "list-units" and not state["blind"]:
    out = [f"{{unit}} loaded active waiting x" for unit in state["timers"] if fnmatch.fnmatch(unit, words[1])]
elif failing is None and words[0] == "stop":
    for unit in words[1:]:
        state["timers"].pop(unit, None)
elif failing is None and words[0] == "set-property":
    unit = state["units"].setdefault(words[1], {{"DevicePolicy": "auto", "DeviceAllow": []}})
    for key, _, value in (word.partition("=") for word in words[2:]):
        if key == "DevicePolicy":
            unit[key] = value
        else:
            unit[key] = unit[key] + [value] if value else []
elif failing is None and words[0] == "show":
    unit = state["units"].get(words[1], {{"DevicePolicy": "auto", "DeviceAllow": []}})
    out = [f"DevicePolicy={{unit['DevicePolicy']}}", *(f"DeviceAllow={{one}}" for one in unit["DeviceAllow"])]
(folder / "state.json").write_text(json.dumps(state))
print(failing if failing is not None else "\\n".join(out))
sys.exit(0 if failing is None else 1)
"""


class ScriptedSystemd:
    """A folder with both programs, for PATH, and what they know."""

    def __init__(self, folder: Path, python: str) -> None:
        self.bin = folder / "bin"
        self._state = folder / "state.json"
        self._state.parent.mkdir(parents=True, exist_ok=True)
        self._save({"calls": [], "timers": {}, "units": {}, "fails": {}, "blind": False})
        for name in ("systemctl", "systemd-run"):
            script(self.bin / name, BODY.format(folder=str(folder)), python)
        self.runs = folder / "run-systemd-system"  # there exactly while systemd runs
        self.runs.mkdir()

    @property
    def calls(self) -> list[list[str]]:
        calls: list[list[str]] = self._load()["calls"]
        return calls

    @property
    def timers(self) -> dict[str, list[str]]:
        timers: dict[str, list[str]] = self._load()["timers"]
        return timers

    @property
    def units(self) -> dict[str, dict[str, Any]]:
        units: dict[str, dict[str, Any]] = self._load()["units"]
        return units

    def called(self, pattern: str) -> list[str]:
        """List the calls that match, each as one line."""
        return [line for call in self.calls if fnmatch.fnmatch(line := " ".join(call), pattern)]

    def lose(self, *, timers: bool = False, units: bool = False) -> None:
        """Forget, as by somebody else's hand."""
        state = self._load()
        state.update({"timers": {}} if timers else {}, **({"units": {}} if units else {}))
        self._save(state)

    def go_blind(self) -> None:
        """List no timer any more, as if each ended at once."""
        self._save({**self._load(), "blind": True})

    def fail(self, **words: str) -> None:
        """Let calls end with 1 and these words: by their first word, `_` for `-`."""
        self._save({**self._load(), "fails": {name.replace("_", "-"): text for name, text in words.items()}})

    def _load(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self._state.read_text())
        return state

    def _save(self, state: dict[str, Any]) -> None:
        self._state.write_text(json.dumps(state))
