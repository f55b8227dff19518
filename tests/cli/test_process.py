"""Real processes, seen from a shell and a terminal."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

import pytest

HUSHREC = [sys.executable, "-m", "hushrec"]


def environment(tmp_path):
    return {**os.environ, "HUSHREC_LEDGER": str(tmp_path / "ledger.sqlite")}


def train_line(files, tmp_path, *more):
    line = ["train", files.train, "--model", "item-bias", "--epsilon", "5", "--delta", "1e-6", *files.domain]
    return [*HUSHREC, *line, "--out", str(tmp_path / "model.hush"), "--force", *more]


def test_import_is_light():
    code = (
        "import hushrec, sys;"
        "heavy = {'numba', 'pyarrow', 'matplotlib', 'pandas', 'polars', 'scipy', 'numpy'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    start = os.times()
    subprocess.run([sys.executable, "-c", code], check=True)
    assert os.times().children_user - start.children_user < 1  # other processes do not count


def test_a_list_from_a_csv_file_loads_neither_file_systems_nor_parquet(files, tmp_path):
    item = files.items[0]
    (tmp_path / "mine.csv").write_text(f"user,item,rating\nann,{item},4\n", encoding="utf-8")
    code = (
        "import sys; sys.modules['pandas'] = None;"  # as hushrec.cli.main does
        "from hushrec.cli import run; assert run(sys.argv[1:]) == 0;"
        "assert not {'pyarrow.fs', 'pyarrow.parquet'} & set(sys.modules)"
    )
    words = ["recommend", files.model, str(tmp_path / "mine.csv"), "--user", "ann"]
    subprocess.run([sys.executable, "-c", code, *words], check=True, stdout=subprocess.DEVNULL)


def test_progress_on_a_terminal_only(files, tmp_path):
    training = train_line(files, tmp_path, "--json")
    measuring = [*HUSHREC, "evaluate", files.model, files.ratings, files.ratings, "--json"]
    for line, word, shown in (
        ([*training, "--no-progress"], b"training", False),  # with it: test_a_real_process
        (measuring, b"3/3", True),
    ):
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 80, 0, 0))
        process = subprocess.Popen(line, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=follower)
        stdout, _ = process.communicate(timeout=600)
        os.close(follower)
        screen = b""
        try:
            while chunk := os.read(leader, 4096):
                screen += chunk
        except OSError:
            pass  # the terminal is closed
        os.close(leader)
        assert process.returncode == 0 and json.loads(stdout)
        assert (word in screen) == shown, screen


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupt(files, tmp_path):
    # the reader waits, so the signal arrives in the middle of the command
    code = (
        "import time\n"
        "from hushrec.cli import main, tables\n"
        "def read(*given, **options): print('reading', flush=True); time.sleep(60)\n"
        "tables.Ratings.from_any = read; main()"
    )
    line = [sys.executable, "-c", code, *train_line(files, tmp_path)[len(HUSHREC) :]]

    def heard():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job of a shell is started deaf to it

    process = subprocess.Popen(
        line,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heard,
    )
    assert process.stdout.readline() == "reading\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130 and stderr.startswith("Error: Interrupted") and stderr.count("\n") == 1
    assert not (tmp_path / "model.hush").exists() and not (tmp_path / "ledger.sqlite").exists()


@pytest.mark.skipif(os.name == "nt", reason="words are Unicode there")
@pytest.mark.parametrize(("word", "mode"), [("müller", "1"), ("日本", "0"), (b"m\xfcller", "1")])
def test_words_of_other_letters_in_the_c_locale(word, mode, tmp_path):
    """They work wherever Python reads UTF-8, and get one sentence otherwise."""
    name = os.fsdecode(word)
    lines = [f"{name},item,rating", *(f"u{k},a,4" for k in range(9))]
    (tmp_path / "t.csv").write_bytes(os.fsencode("\n".join(lines)))
    os.symlink(os.fsencode("t.csv"), os.fsencode(tmp_path / f"{name}.csv"))
    (tmp_path / "items.txt").write_text("a\n", encoding="utf-8")
    line = ["check", f"{name}.csv", "--catalogue", "items.txt", "--rating-range", "1", "5"]
    words = [*HUSHREC, *line, "--columns", f"user={name}", "--json"]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": mode}
    done = subprocess.run(
        [os.fsencode(each) for each in words], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    if mode == "0" or isinstance(word, bytes):
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "is not UTF-8 text" in done.stderr
    else:
        assert done.returncode == 0 and json.loads(done.stdout)["usable"] == 9, done.stderr
