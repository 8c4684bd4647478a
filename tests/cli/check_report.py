"""check_report.py REPORT PREDICTED SET: the report of `cortado test --report` against what `cortado predict` said of
the same files, counted here: CSV of (file, class), the true class being the file's folder. Where CORTADO_SKLEARN is
set scikit-learn counts, too."""
import csv, json, math, os, sys

report = json.load(open(sys.argv[1]))
rows = list(csv.DictReader(open(sys.argv[2])))
classes = report["classes"]
assert classes == ["grass", "sand", "sea"] and report["samples"] == len(rows), (classes, report["samples"], len(rows))
true = [classes.index(r["file"].split("/")[-2]) for r in rows]
said = [classes.index(r["class"]) for r in rows]
p = [float(r["probability"]) for r in rows]
n = range(len(classes))
confusion = [[sum(t == a and s == b for t, s in zip(true, said)) for b in n] for a in n]
assert report["confusion"] == confusion, (report["confusion"], confusion)
right = sum(t == s for t, s in zip(true, said))
assert report["accuracy"] == right / len(rows)
for c in n:
    predicted, there = said.count(c), true.count(c)
    assert report["precision"][c] == (confusion[c][c] / predicted if predicted else 0.0)
    assert report["recall"][c] == confusion[c][c] / there
error = 0
for k, b in enumerate(report["calibration"]["bins"]):
    own = [i for i in range(len(rows)) if min(int(p[i] * 10), 9) == k]
    assert b["samples"] == len(own), (k, b, len(own))
    if own:
        confidence, correct = sum(p[i] for i in own) / len(own), sum(true[i] == said[i] for i in own) / len(own)
        assert math.isclose(b["probability"], confidence, rel_tol=1e-5) and math.isclose(b["accuracy"], correct)
        error += len(own) / len(rows) * abs(confidence - correct)
assert math.isclose(report["calibration"]["error"], error, abs_tol=1e-5), (report["calibration"]["error"], error)
wrong = sorted((-p[i], rows[i]["file"]) for i in range(len(rows)) if true[i] != said[i])
worst = report["worst"]
assert len(worst) == min(len(wrong), 20) and len(worst) > 0, (len(worst), len(wrong))
for w, (q, file) in zip(worst, wrong):
    assert math.isclose(w["probability"], -q, rel_tol=1e-5) and w["true"] != w["predicted"]
    assert file.endswith(w["file"]) and w["file"].startswith(w["true"] + "/"), (w, file)
if os.environ.get("CORTADO_SKLEARN"):
    from sklearn import metrics

    assert report["confusion"] == metrics.confusion_matrix(true, said, labels=n).tolist()
    assert report["accuracy"] == metrics.accuracy_score(true, said)
    scores = metrics.precision_recall_fscore_support(true, said, labels=n, zero_division=0)
    assert report["precision"] == scores[0].tolist() and report["recall"] == scores[1].tolist(), scores
    print("scikit-learn counts the same")
print(right, "of", len(rows), "right,", len(wrong), "wrong")
