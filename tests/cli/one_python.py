"""One Python for the many calls of a test, so that its modules are loaded once.

one_python.py FOLDER MODULE...   loads the modules, then takes calls from standard input until that ends

A call is the folder to run in and what would stand behind `python`, each with \\037 behind it, then \\036. It runs in a
child of its own. Its exit code, a line, and behind it its standard output are written to FOLDER/answered.
"""
import importlib
import os
import runpy
import sys
import tempfile
import traceback


def run(where, script, *arguments):
    os.chdir(where)
    sys.argv = [script, *arguments]
    if script == "-c":
        sys.argv = sys.argv[1:]
        exec(compile(arguments[0], "-c", "exec"), {"__name__": "__main__"})
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(script))
        runpy.run_path(script, run_name="__main__")


def in_child(call, out):
    os.dup2(out.fileno(), 1)
    code = 0
    try:
        run(*call)
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def calls():
    text = b""
    while part := os.read(0, 65536):
        *whole, text = (text + part).split(b"\036")
        for call in whole:
            yield call.decode().split("\037")[:-1]


folder = os.path.abspath(sys.argv[1])
for module in sys.argv[2:]:
    importlib.import_module(module)
for call in calls():
    with tempfile.TemporaryFile() as out:
        child = os.fork()
        if child == 0:
            in_child(call, out)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        with open(folder + "/answered", "wb") as f:
            f.write(b"%d\n" % (code % 256) + out.read())
