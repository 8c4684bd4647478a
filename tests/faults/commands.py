#!/usr/bin/env python3
"""Draws command lines of every verb, right ones and wrong ones, and looks at how each ends.

Usage: tests/faults/commands.py RESULTS [--cases=N] [--first=0] [--seed=1] [--keep=FOLDER] [--only=VERB]
       tests/faults/commands.py RESULTS --table

The program itself says which verbs and options there are (--help, completion). drawn_options.py has values for each, right ones and wrong ones,
and ends where one has no rule; drawn_files.py makes files of every kind. A case is a command line that is right, with some more options. Of most
cases something is then drawn to be otherwise: an option left out, given twice, empty, without its value, a wrong value, the file of another kind,
a file that cannot be read, an odd name, a word nearly right, an option of another verb, a stray word, a stream that is closed or full, an odd
environment, a value from the environment. Some run on two ranks, some as a user that may not read all.
 * It ends in LIMIT_S with a code that the documentation has for it, never by a signal. What must be refused ends with 2, or 3 where it is a file.
 * Not 0: one line of error, which says an option, a value or a file, no control character in it; nothing new, nothing changed.
 * 0: the files that were asked for are there, and whole.
 * No temporary file, and the bytes of all other files as they were.
 * Refused in REFUSES_S of a processor with less than REFUSES_KIB of memory.
--keep has the folders of the cases that are wrong. job.py says what RESULTS and --table are.
"""
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import drawn_files
import drawn_options
import job

LIMIT_S, REFUSES_S, REFUSES_KIB = 60, 10, 1 << 20
NOBODY = 65534
LINE = re.compile(r"[EWID]\d{4} \S+ \d+ \S+\] |[EWI] ")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]|\u009b")
OTHERS = re.compile(r"libgomp: |OMP: ")  # what OpenMP says of its own variables
TEMPORARY = re.compile(r"\.tmp|\.owner|\.probe|\.lock$|cortado")
OF_MPI = re.compile(r"ompi|pmix|ucx|openmpi|hwloc|mpi")
FIRST = ("new", "sweep", "report", "convert ")
ENVIRONMENTS = ({"OMP_NUM_THREADS": "0"}, {"OMP_NUM_THREADS": "-1"}, {"OMP_NUM_THREADS": "9999999"}, {"OMP_NUM_THREADS": "many"}, {"TMPDIR": "/nothere"}, {"HOME": None},
                {"HOME": "/nothere"}, {"LANG": "xx_YY.nothing"}, {"LC_ALL": "de_DE.UTF-8"}, {"COLUMNS": "0"}, {"TERM": ""}, {"TZ": "Nowhere/\x1b"},
                {"CORTADO_NOSUCH": "1"}, {"CORTADO_LOGS": "x"}, {"SOURCE_DATE_EPOCH": "5x"}, {"OMP_THREAD_LIMIT": "1"}, {"OPENBLAS_NUM_THREADS": "-3"}, {"PWD": "/nothere"})


class Command:
    """A verb and its words."""

    def __init__(self, draw, taken, verb):
        self.draw, self.verb, self.taken = draw, verb, taken[verb]
        self.words = []  # [option or None, value or None]
        self.env, self.end, self.stdin, self.stdout = {}, [], "null", "file"
        self.twins = []
        self.wrong = []  # (what must come of it, what it is)
        self.ranks, self.nobody = 1, os.geteuid() == 0 and draw.random() < 0.12
        for word in draw.choice(drawn_options.BASES[verb]).split():
            name, _, value = word[2:].partition("=") if word.startswith("--") else (None, "", word)
            self.words.append([name, value if "=" in word or name is None else None])
        self.plain = True
        for _ in range(draw.choice((0, 0, 0, 1, 1, 2, 3))):
            name = draw.choice(sorted(self.taken))
            if not self.has(name) and name != "log":
                self.words.append([name, self.taken[name].right(draw)])
                self.plain = False
        if not self.nobody and (verb in drawn_options.IN_JOB or verb.startswith(FIRST)) and draw.random() < 0.15:
            self.ranks = 2
        for _ in range(draw.choice((0, 1, 1, 1, 1, 1, 2))):
            draw.choice((self.leave_out, self.twice, self.empty, self.alone, self.value, self.value, self.value, self.value, self.value, self.value, self.called,
                         self.misspelt, self.foreign, self.stray, self.streams, self.environment, self.twin, self.one_more))()

    def has(self, name):
        return any(n == name for n, _ in self.words)

    def pick(self, of=None):
        """One of the options that are given."""
        found = [w for w in self.words if w[0] is not None and w[0] in self.taken and (of is None or of(self.taken[w[0]]))]
        return self.draw.choice(found) if found else None

    def leave_out(self):
        if self.words:
            word = self.draw.choice(self.words)
            if (self.verb, word[0]) in LONG:
                return
            self.words.remove(word)
            self.wrong.append((None, f"without {word[0] or word[1]}"))

    def twice(self):
        word = self.pick()
        if word:
            self.words.append([word[0], self.taken[word[0]].right(self.draw)])
            self.wrong.append((None, f"--{word[0]} twice"))

    def empty(self):
        word = self.pick()
        if word:
            word[1] = ""
            self.wrong.append((2, f"--{word[0]}="))

    def alone(self):
        """The last option without its value."""
        word = self.pick(lambda rule: not isinstance(rule, drawn_options.Flag))
        if word:
            self.words.remove(word)
            self.end = [f"--{word[0]}"]
            self.wrong.append((None, f"--{word[0]} without a value"))

    def value(self):
        word = self.draw.choice(self.words) if self.draw.random() < 0.3 and self.words else self.pick()
        if word is None:
            return
        rule = self.taken.get(word[0] or drawn_options.REST.get(self.verb))
        if rule is not None:
            word[1], end = rule.wrong(self.draw)
            if "locked" in word[1] and not self.nobody:
                end = None
            if word[0] is None and word[1].startswith("-"):
                end = None
            self.wrong.append((end, f"{word[0]}={word[1][:60]}"))

    def one_more(self):
        """A wrong value of an option that is not needed."""
        name = self.draw.choice(sorted(self.taken))
        value, end = self.taken[name].wrong(self.draw)
        self.words.append([name, value])
        self.wrong.append((None if "locked" in value and not self.nobody else end, f"{name}={value[:60]}"))

    def called(self):
        """A file by another name."""
        word = self.pick(lambda rule: isinstance(rule, drawn_options.File))
        if word and word[1] and os.path.isfile(os.path.join(BASE, word[1])):
            name = drawn_options.odd_names(self.draw, word[1])
            self.end += [("copy", word[1], name)]
            word[1] = name
            self.wrong.append((None, f"called {name}"))

    def misspelt(self):
        word = self.pick()
        if word:
            name = word[0]
            word[0] = self.draw.choice((name + "x", name[:-1] or "x", name.upper(), " " + name, name + " ", name[0] + name, "-" + name, name.replace("_", ".") + ".", name * 40,
                                        name + "\n", name + "\x1b[1m", "\udcff" + name))
            self.wrong.append((2, f"--{word[0][:60]}"))

    def foreign(self):
        name = self.draw.choice(sorted({n for verb in TAKEN for n in TAKEN[verb]} - set(self.taken)))
        self.words.append([name, "1"])
        self.wrong.append((2, f"--{name} of another verb"))

    def stray(self):
        word = self.draw.choice(("--", "stray", "-x", "", "-", "---", "=", "--=5", "\n", "\x1b[2J", "@x", "-solver=x"))
        self.words.append([None, word])
        self.wrong.append((2 if self.verb not in drawn_options.REST or word.startswith("-") else None, f"stray {word}"))

    def streams(self):
        if self.draw.random() < 0.3:
            self.stdin = "closed"
        else:
            self.stdout = self.draw.choice(("full", "closed", "gone"))
        self.wrong.append((None, f"stdin {self.stdin}, stdout {self.stdout}"))

    def environment(self):
        more = self.draw.choice(ENVIRONMENTS)
        self.env.update(more)
        self.wrong.append((None, str(more)))

    def twin(self):
        """An option by its variable, right or wrong."""
        name = self.draw.choice(sorted(self.taken))
        rule = self.taken[name]
        given = self.has(name)
        value, end = (rule.right(self.draw), None) if self.draw.random() < 0.3 else rule.wrong(self.draw)
        if name in ("set", "fix", "data_shape", "files", "runs", "sweep", "algorithms") or self.verb == "simulate" or (given and not isinstance(rule, (drawn_options.Count, drawn_options.Choice))):
            end = None
        self.env["CORTADO_" + name.upper()] = value or "true"
        self.twins.append(name)
        self.wrong.append((None if "locked" in (value or "") else end, f"CORTADO_{name.upper()}={(value or 'true')[:60]}"))

    def argv(self):
        """The words, in some order, and copies that are to be made."""
        self.draw.shuffle(self.words)
        argv, copies = [], [e for e in self.end if isinstance(e, tuple)]
        for name, value in self.words:
            if name is None:
                argv.append(value)
            elif value is None:
                argv.append(f"--{name}")
            elif self.draw.random() < 0.12 and not isinstance(self.taken.get(name), drawn_options.Flag) and name not in ("json", "fit", "topology", "skip_broken"):
                argv += [f"--{name.replace('_', '-')}", value]
            else:
                argv.append(f"--{name}={value}")
        return [*argv, *(e for e in self.end if isinstance(e, str))], copies


def state(folder):
    """What lies in a folder: sizes, times, numbers of files."""
    found = {}
    for path, folders, names in os.walk(folder):
        for name in folders + names:
            at = os.path.join(path, name)
            s = os.lstat(at)
            found[os.path.relpath(at, folder)] = None if os.path.isdir(at) and not os.path.islink(at) else (s.st_size, s.st_mtime_ns, s.st_ino)
    return found


class Case:
    def __init__(self, folder, command):
        self.folder, self.command = folder, command
        self.here, self.tmp = os.path.join(folder, "case"), os.path.join(folder, "tmp")
        self.argv, copies = command.argv()
        for path in (self.here, self.tmp):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(BASE, self.here, symlinks=True)
        os.mkdir(self.tmp)
        for _, old, new in copies:
            shutil.copy(os.path.join(self.here, old), os.fsencode(os.path.join(self.here, new)))
        self.odd_files()
        if command.nobody:
            for path, _, names in os.walk(folder):
                for name in [path, *(os.path.join(path, n) for n in names)]:
                    if not path.startswith(BASE):
                        os.chown(name, NOBODY, NOBODY, follow_symlinks=False)

    def odd_files(self):
        os.mkfifo(os.path.join(self.here, "fifo"))
        os.symlink("loop", os.path.join(self.here, "loop"))
        os.mkdir(os.path.join(self.here, "a folder"))
        for word in self.argv + list(self.command.env.values()):
            for name in re.findall(r"(?:locked|empty)[.a-z0-9]*$", word or ""):
                with open(os.path.join(self.here, name), "w", encoding="ascii") as f:
                    f.write("" if name.startswith("empty") else "x")
                os.chmod(os.path.join(self.here, name), 0o000 if name.startswith("locked") else 0o644)

    def prepare(self):
        """In the process, before the program."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for fd, how in ((0, self.command.stdin), (1, self.command.stdout)):
            if how == "closed":
                os.close(fd)

    def run(self):
        c = self.command
        env = job.environment({"TMPDIR": self.tmp, "HOME": self.here})
        for name, value in c.env.items():
            env.pop(name, None)
            if value is not None:
                env[name] = value
        command = job.launch(c.ranks, [job.CORTADO, *c.verb.split(), *self.argv])
        out = open(os.path.join(self.folder, "out"), "wb") if c.stdout in ("file", "closed") else open("/dev/full", "wb")
        if c.stdout == "gone":
            end, start = os.pipe()
            os.close(end)
            out = os.fdopen(start, "wb")
        begun = time.monotonic()
        with out, open(os.path.join(self.folder, "err"), "wb") as err:
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if c.nobody else {}
            process = subprocess.Popen([os.fsencode(w) for w in command], cwd=self.here, env={k: os.fsencode(v) for k, v in env.items()}, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=err, preexec_fn=self.prepare, start_new_session=True, **user)
        ready = None
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - begun > LIMIT_S:
                os.killpg(process.pid, signal.SIGKILL)
                os.wait4(process.pid, 0)
                process.returncode = -9
                return f"no end in {LIMIT_S} s", LIMIT_S, 0
            if c.verb == "serve" and ready is None and "Batches of at most" in self.stderr():
                ready = time.monotonic()
            if ready and time.monotonic() - ready > 1:
                os.kill(process.pid, signal.SIGTERM)
                ready = 0
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss

    def stderr(self):
        with open(os.path.join(self.folder, "err"), encoding="utf-8", errors="surrogateescape") as f:
            return f.read()

    def wanted(self):
        c = self.command
        ends = {end for end, _ in c.wrong}
        names = {n for n, _ in c.words} | set(c.twins)
        codes = {0, 2, 3}
        if not c.wrong and c.plain and c.ranks == 1 and c.verb != "simulate":
            return {0, -signal.SIGTERM} if c.verb == "serve" else {0}
        again = [n for n, _ in c.words if n is not None]
        if len(again) != len(set(again)):
            ends -= {"small", "refused", 2}
        if c.verb == "scale" and "report" in names:  # nothing else counts beside it
            ends -= {"small", "refused", 2}
        if "small" in ends or "refused" in ends:
            codes = {2, 3}
        if 2 in ends:
            codes = {2} if len(c.wrong) == 1 and c.plain else {2, 3}
        if c.verb == "serve":  # a signal while it starts
            codes.add(-signal.SIGTERM)
        if c.stdout in ("full", "closed") or c.verb == "serve":
            codes.add(3)
        if c.stdout == "gone" and c.ranks == 1:
            codes.add(-signal.SIGPIPE)
        if names & {"topology", "parallel"} or c.ranks == 2:
            codes.add(4)
        if names & {"gpu", "solver_mode", "share_gpu", "gpus"}:
            codes.add(1)
        return codes

    def judge(self, code, seconds, kib, before, after):
        c, said = self.command, self.stderr()
        wrong, wanted = [], self.wanted()
        if code not in wanted:
            wrong.append(f"exit code {code}, not {sorted(wanted)}")
        if CONTROL.search(said.replace("\n", "")):
            wrong.append("control characters in what is said")
        lines = said.splitlines() if "\x0b" not in said else said.split("\n")
        errors = [line for line in lines if line.startswith("E") and LINE.match(line)]
        if c.ranks == 1:
            odd = [line for line in lines if not LINE.match(line) and not OTHERS.match(line) and (line or not OTHERS.search(said))]
            if odd and not (c.wrong and "OMP_" in c.wrong[-1][1]):
                wrong.append(f"other lines: {odd[0][:120]}")
        new = {n for n in after if n not in before}
        changed = {n for n in before if n in after and before[n] != after[n]}
        gone = {n for n in before if n not in after}
        if code in (0, -signal.SIGPIPE, -signal.SIGTERM):
            if code == 0 and c.stdout in ("full", "closed") and c.verb in PRINTS and c.ranks == 1:
                wrong.append("what should be printed is lost")
            if errors and code == 0:
                wrong.append("an error, and 0")
            wrong += self.unasked(new | changed | gone) + (self.lacking() if code == 0 else [])
        elif isinstance(code, int):
            if len(errors) != 1 and not (c.ranks > 1 and "OMP_NUM_THREADS" in said):  # ranks look before they know of one another
                wrong.append(f"{len(errors)} lines of error")
            elif not self.names(errors[0].split("] ", 1)[-1]):
                wrong.append("names nothing that was given")
            elif "standard output" in errors[0]:  # all else is done
                new, changed, gone = (self.theirs(n) for n in (new, changed, gone))
            if new or changed or gone:
                wrong.append(f"left {sorted(new)[:4]}, changed {sorted(changed)[:4]}, gone {sorted(gone)[:4]}")
            if (seconds > REFUSES_S or kib > REFUSES_KIB) and not any("standard output" in e for e in errors):
                wrong.append(f"refused in {seconds:.0f} s with {kib >> 10} MiB")
        if c.verb == "sweep":  # its locks stay
            new = {n for n in new if not n.endswith(".lock")}
        left = [n for n in new if TEMPORARY.search(os.path.basename(n)) and n not in self.argv and "=" not in n]
        left += [n for n in os.listdir(self.tmp) if not OF_MPI.match(n)]
        if left:
            wrong.append(f"temporary {left[:4]}")
        return errors, "; ".join(wrong)

    def given(self):
        """Each value that was given."""
        return [v for _, v in self.command.words if v] + [v for v in self.command.env.values() if v] + list(self.argv)

    def names(self, text):
        """Whether an error says what it is of."""
        if text.split(":")[0] in self.command.taken or re.search(r"--\w|CORTADO_|cortado \w+|[\w.]+:\d+|OMP_NUM_THREADS|standard output|GPU", text):
            return True
        return any(part in text for value in self.given() for part in (*value.split(","), value.split(".")[0], escaped(value)[:60], value.split("/")[0], os.path.basename(value.rstrip("/"))[:60] or value, value[:60]) if part)

    def outs(self):
        """The file that each option asks for; the last one counts."""
        found = {}
        for name, value in self.command.words:
            rule = self.command.taken.get(name)
            if isinstance(rule, drawn_options.Out) and value and value != "-":
                found[name] = (value, rule)
        for name in self.command.twins:
            rule = self.command.taken[name]
            if isinstance(rule, drawn_options.Out) and name not in found:
                found[name] = (self.command.env["CORTADO_" + name.upper()], rule)
        return found

    def unasked(self, touched):
        """What was written that nobody asked for."""
        more = sorted(self.theirs(touched))
        return [f"wrote {more[:4]}"] if more else []

    def theirs(self, touched):
        """Those of some files that are no outputs."""
        asked = [os.path.normpath(v) for v, _ in self.outs().values()]
        asked += [a.split(":")[0] for a in asked]
        if self.command.verb == "train":
            touched = {t for t in touched if not re.match(r"(s|wt)_iter|latest", t)}
        if self.command.verb == "scale":
            asked += ["study", "scaling"]
        if self.command.verb == "convert text":
            asked += ["tokenizer.json", "b/tokenizer.json", *(os.path.join(os.path.dirname(a), "tokenizer.json") for a in asked)]
        more = {t for t in touched if not any(t == a or t.startswith((a + "/", a + ".")) or a.startswith(t + "/") for a in asked)}
        return {t for t in more if not (self.command.verb == "convert text" and any(v in (t, "./" + t) for v in self.given()))}

    def lacking(self):
        """What was asked for and is not there, or not whole."""
        wrong = []
        for name, (value, _) in self.outs().items():
            path = os.path.join(os.fsencode(self.here), os.fsencode(value))
            if (self.command.verb, name) in LAZY or (self.command.verb == "scale" and self.command.has("report")):
                continue
            if not os.path.exists(path):
                wrong.append(f"no {name} {value[:60]!r}")
            elif not os.path.isdir(path) and not whole(path, lines=self.command.verb.startswith("bench") and name == "json"):
                wrong.append(f"{name} {value[:60]!r} is not whole")
        return wrong


# written where there is something to write: a trace of iterations that came, engines that were timed, costs of a server that serves
LAZY = {("train", "stage"), ("time", "stage_dir"), ("test", "stage_dir"), ("extract", "stage_dir")}


def whole(path, lines):
    """By its end or by a reader. lines: of JSON, each an object of its own."""
    with open(path, "rb") as f:
        data = f.read()
    end = os.path.splitext(path)[1]
    try:
        if end == b".jsonl" or (end == b".json" and lines):
            return bool(data) and all(json.loads(line) for line in data.splitlines())
        if end == b".json":
            return bool(json.loads(data))
        if end == b".npz":
            return zipfile.ZipFile(os.fsdecode(path)).testzip() is None
    except (ValueError, zipfile.BadZipFile):
        return False
    ends = {b".svg": b"</svg>", b".html": b"</html>", b".png": b"IEND\xaeB`\x82", b".dot": b"}"}
    heads = {b".h5": b"\x89HDF", b".png": b"\x89PNG"}
    return (bool(data) or end in (b".txt", b".prototxt")) and data.rstrip().endswith(ends.get(end, b"")) and data.startswith(heads.get(end, b""))


PRINTS = {"find_rate", "predict", "generate", "time", "plan", "info", "bench comm", "bench codec", "bench serve", "check", "test"}
LONG = {("bench codec", "count"), ("bench codec", "repeat"), ("bench comm", "repeat"), ("bench serve", "repeat"), ("bench comm", "sizes"), ("convert digits", "count"), ("bench serve", "shapes")}  # without them minutes

def escaped(text):
    """As the log has it."""
    return re.sub("[\x00-\x08\x0a-\x1f\x7f-\x9f\udc80-\udcff]", lambda m: "\\n" if m[0] == "\n" else "".join(f"\\x{b:02x}" for b in os.fsencode(m[0])), text)


BASE, TAKEN = None, None


def try_all(results, options, folder):
    global BASE, TAKEN
    BASE = os.path.join(folder, "base")
    TAKEN = drawn_options.read(lambda *words: subprocess.run([job.CORTADO, *words], stdout=subprocess.PIPE, text=True, check=True).stdout)
    os.environ.setdefault("OPENBLAS_CORETYPE", core())
    os.chmod(folder, 0o755)
    drawn_files.make(BASE)
    for seed, number, name in job.drawn(results, options):
        draw = random.Random(f"{seed} {number}")
        verb = options.get("only") or draw.choice(sorted(TAKEN))
        case = Case(folder, Command(draw, TAKEN, verb))
        before = state(case.here)
        code, seconds, kib = case.run()
        errors, wrong = case.judge(code, seconds, kib, before, state(case.here))
        line = " ".join([*(f"{k}={shlex.quote(v or '')}" for k, v in case.command.env.items()), *(("mpirun -n 2",) if case.command.ranks == 2 else ()),
                         verb, shlex.join(case.argv)])
        note = ascii(line)[1:-1][:600] + (" # nobody" if case.command.nobody else "") + "".join(f" | {ascii(why)[1:-1]}" for _, why in case.command.wrong if why.startswith("std"))
        note = note.replace(os.path.dirname(job.CORTADO) + "/", "")
        results.add(f"command: {verb}", name, sorted(case.wanted()), code, short(ascii(wrong)[1:-1]), short(
                    note + (f" => {ascii(errors[0].split('] ', 1)[-1])[1:-1][:300]}" if errors and isinstance(code, int) else "")))
        if wrong and "keep" in options:
            kept = os.path.join(options["keep"], f"{seed}.{number}")
            shutil.rmtree(kept, ignore_errors=True)
            os.makedirs(kept)
            for what in ("out", "err"):
                shutil.copy(os.path.join(folder, what), kept)


def short(text):
    """Names of one letter are long."""
    return re.sub(r"(.)\1{20,}", r"\1...\1", text)


def core():
    """OpenBLAS's kernels, so that no process starts again with them."""
    done = subprocess.run([job.CORTADO, "info", "--limits=false"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return re.search(r"^blas core +(\S+)", done.stdout, re.M).group(1)


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"cases", "first", "seed", "keep", "only"}, try_all)
