"""Runs the code cells of Caffe's notebooks 00-classification and 01-learning-lenet with cortado.caffe.

    notebooks.py NOTEBOOK      in a folder laid out as caffe/examples

Cells are of Python 2 and IPython. What is changed in them is in the tables below, and nothing else: the import lines, statements of
print, divisions of whole numbers, magic commands. Commands of the shell do not run, since they fetch data from the network. Values of
expressions at the end of a cell are not shown.
"""
import json
import re
import sys
import traceback
import warnings

import cortado
import matplotlib

matplotlib.use("Agg")
warnings.filterwarnings("ignore", message="the library of Cortado runs on the CPU")
warnings.filterwarnings("ignore", message="More than 20 figures")

IMPORTS = (
    (r"^(\s*)import caffe$", r"\1from cortado import caffe"),
    (r"^(\s*)from caffe import ", r"\1from cortado.caffe import "),
    (r"^(\s*)from caffe\.proto import ", r"\1from cortado.caffe.proto import "),
)
PYTHON_3 = (
    (r"^(\s*)print (.+)$", r"\1print(\2)"),
    (r"\bniter / 10\b", "niter // 10"),  # both are whole numbers
)
IPYTHON = (
    (r"^(\s*)!(.+)$", r"\1print('(not run: ' + '''\2''' + ')')"),
    (r"^%matplotlib inline$", ""),
    (r"^%%time$", ""),
    (r"^%timeit (.+)$", r"\1"),
)


def translated(source):
    for pattern, new in (*IMPORTS, *PYTHON_3, *IPYTHON):
        source = re.sub(pattern, new, source, flags=re.MULTILINE)
    return source


def main(file):
    with open(file, encoding="utf-8") as f:
        cells = [cell for cell in json.load(f)["cells"] if cell["cell_type"] == "code"]
    cortado.set_random_seed(1)  # for solvers whose file gives none
    names, failed, scores = {"__name__": "__main__"}, 0, None
    for number, cell in enumerate(cells):
        try:
            exec(compile(translated("".join(cell["source"])), f"cell {number}", "exec"), names)
        except Exception:
            failed += 1
            print(f"cell {number} fails:\n{traceback.format_exc()}")
        if names.get("test_acc") is not scores:
            scores = names["test_acc"]
            print(f"cell {number}: accuracy {scores[-1]:.3f}")
    print(f"{len(cells) - failed} of {len(cells)} cells run")
    return 1 if failed else 0


sys.exit(main(sys.argv[1]))
