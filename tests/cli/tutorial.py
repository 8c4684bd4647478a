#!/usr/bin/env python3
"""Runs a page's commands and compares what they print with what the page says.

    tutorial.py PAGE        in the current folder; a line `ok` or `not ok` for each command

Commands stand behind `$ ` in blocks that begin with ```console; a line that ends with a backslash goes on in the next one. Below a
command stands what it prints, on both streams. There `…` is any text, and a line of it alone any number of lines. All run in one bash.
A command must succeed, unless the next one shows its exit code.
"""
import os
import re
import signal
import subprocess
import sys
import threading
import time

MARK = "end-of-command"
MOST_S = 300  # a command; what takes 20 s alone takes 120 beside other programs


def commands_of(page):
    """[command, what it prints] each."""
    found, fenced, goes_on = [], False, False
    with open(page, encoding="utf-8") as f:
        for line in f.read().split("\n"):
            if line.startswith("```"):
                fenced = (line == "```console")
            elif fenced and goes_on:
                found[-1][0] += "\n" + line
                goes_on = line.endswith("\\")
            elif fenced and line.startswith("$ "):
                found.append([line[2:], []])
                goes_on = line.endswith("\\")
            elif fenced:
                found[-1][1].append(line)
    return found


CHOICE = re.compile(r"I\d+ .*OpenBLAS had picked")  # a line that some processors bring


def is_as(lines, printed):
    """Whether the printed lines are these: a `…` alone takes any number of lines. at: how many of `printed` may be taken so far."""
    at = {0}
    for line in lines:
        if line.strip() == "…":
            at = set(range(min(at), len(printed) + 1)) if at else at
        else:
            pattern = re.compile(".*".join(re.escape(part) for part in line.rstrip().split("…")) + " *")
            at = {k + 1 for k in at if k < len(printed) and pattern.fullmatch(printed[k])}
    return len(printed) in at


class Shell:
    def __init__(self):
        self.bash = subprocess.Popen(["bash", "--noprofile", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace",
                                     start_new_session=True)

    def run(self, command):
        """The lines that it prints, and its exit code."""
        self.bash.stdin.write("{ %s\n} </dev/null; set -- $?; echo; echo %s $1; (exit $1)\n" % (command, MARK))
        self.bash.stdin.flush()
        late = threading.Timer(MOST_S, os.killpg, (self.bash.pid, signal.SIGKILL))
        late.start()
        text = ""
        for line in self.bash.stdout:
            if line.startswith(MARK):
                late.cancel()
                return text[:-1].splitlines(), int(line.split()[1])
            text += line
        late.cancel()
        return text.splitlines() + ["the shell ended, or was ended after %d s" % MOST_S], -1


def main():
    shell, failed, start = Shell(), 0, time.monotonic()
    found = commands_of(sys.argv[1])
    if not found:
        sys.exit("%s: no commands" % sys.argv[1])
    for n, (command, lines) in enumerate(found):
        printed, code = shell.run(command)
        printed = [line for line in printed if not CHOICE.match(line)]
        shown = (n + 1 < len(found)) and found[n + 1][0] == "echo $?"
        why = []
        if code != 0 and not shown:
            why.append("exit code %d" % code)
        if not is_as(lines, printed):
            why.append("it should print\n%s\nand prints\n%s" % ("\n".join(lines), "\n".join(printed)))
        print("%s %d_%s" % ("not ok" if why else "ok", n + 1, re.sub(r"\W+", "_", command)[:50]))
        for w in why:
            print("# " + w.replace("\n", "\n# "))
        failed += bool(why)
        sys.stdout.flush()
        if shell.bash.poll() is not None:
            break
    shell.bash.stdin.close()
    shell.bash.wait(MOST_S)  # so that who called hears of the processor time
    print("# %d commands, %.0f s" % (len(found), time.monotonic() - start))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
