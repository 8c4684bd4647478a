#!/bin/sh
# Draws metrics as SVG: one panel a field, one curve a file, over iterations. Needs awk alone.
#   scripts/curves.sh OUT.svg FIELD[,FIELD...] METRICS.jsonl...
# A field is one of `train` events (loss, lr, images_per_s ...), or an output of `test` events, such
# as accuracy: then the points are marked. scripts/plot_log.py draws logs too, and needs Python.
set -eu
[ $# -ge 3 ] || { sed -n '3,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$1 fields=$2
shift 2
awk -v fields="$fields" '
    # the number behind "name": in text; "" where there is none
    function value(text, name) {
        if (!match(text, "\"" name "\":-?[0-9][-+0-9.e]*")) return ""
        return substr(text, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
    }
    # a field of a train event, or an output of a test event
    function take(field,    phase, v) {
        if (/"event":"train"/) { phase = "train"; v = value($0, field) }
        else if (/"event":"test"/ && match($0, /"outputs":.*/)) { phase = "test"; v = value(substr($0, RSTART), field) }
        if (v == "") return
        seen[field, phase] = 1
        k = ++count[field, phase, FILENAME]
        x[field, phase, FILENAME, k] = value($0, "iter")
        y[field, phase, FILENAME, k] = v
    }
    function label(v) { return sprintf("%.4g", v) }
    function panel(field, top,    f, k, n, x0, x1, y0, y1, px, py, line, dots, phase, i) {
        phase = ((field, "train") in seen) ? "train" : "test" # a loss may be both
        for (f = 1; f <= files; f++) for (k = 1; k <= count[field, phase, file[f]]; k++) {
            if (n++ == 0) { x0 = x1 = x[field, phase, file[f], k]; y0 = y1 = y[field, phase, file[f], k] }
            if (x[field, phase, file[f], k] < x0) x0 = x[field, phase, file[f], k]
            if (x[field, phase, file[f], k] > x1) x1 = x[field, phase, file[f], k]
            if (y[field, phase, file[f], k] < y0) y0 = y[field, phase, file[f], k]
            if (y[field, phase, file[f], k] > y1) y1 = y[field, phase, file[f], k]
        }
        if (n == 0) { printf "curves: no file has a number %s\n", field > "/dev/stderr"; failed = 1; return }
        if (x1 == x0) x1 = x0 + 1
        if (y1 == y0) { y0 -= 0.5; y1 += 0.5 }
        printf "<text x=\"70\" y=\"%d\" font-weight=\"bold\">%s</text>\n", top - 8, field
        printf "<rect x=\"70\" y=\"%d\" width=\"640\" height=\"220\" fill=\"none\" stroke=\"#888\"/>\n", top
        for (i = 0; i <= 4; i++) {
            py = top + 220 - 55 * i
            printf "<path d=\"M70 %dh640\" stroke=\"#ddd\"/><text x=\"64\" y=\"%d\" text-anchor=\"end\">%s</text>\n", py, py + 4, label(y0 + (y1 - y0) * i / 4)
            printf "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", 70 + 160 * i, top + 235, label(x0 + (x1 - x0) * i / 4)
        }
        for (f = 1; f <= files; f++) {
            line = dots = ""
            for (k = 1; k <= count[field, phase, file[f]]; k++) {
                px = sprintf("%.1f", 70 + (x[field, phase, file[f], k] - x0) / (x1 - x0) * 640)
                py = sprintf("%.1f", top + 220 - (y[field, phase, file[f], k] - y0) / (y1 - y0) * 220)
                line = line " " px "," py
                if (phase == "test") dots = dots "<circle cx=\"" px "\" cy=\"" py "\" r=\"3\"/>"
            }
            if (line == "") continue
            printf "<g fill=\"%s\" stroke=\"%s\"><polyline points=\"%s\" fill=\"none\" stroke-width=\"1.5\"/>%s", colour[f % 6], colour[f % 6], substr(line, 2), dots
            printf "<text x=\"700\" y=\"%d\" text-anchor=\"end\" stroke=\"none\">%s</text></g>\n", top + 14 * f, name[f]
        }
    }
    BEGIN { n_field = split(fields, field, ","); split("#D55E00 #009E73 #CC79A7 #E69F00 #56B4E9", colour, " "); colour[0] = "#000000" }
    FNR == 1 {
        file[++files] = FILENAME
        name[files] = FILENAME
        sub(/^.*\//, "", name[files])
        sub(/\.jsonl$/, "", name[files])
        gsub(/&/, "\\&amp;", name[files])
        gsub(/</, "\\&lt;", name[files])
    }
    { for (i = 1; i <= n_field; i++) take(field[i]) }
    END {
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"730\" height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n", 30 + 280 * n_field
        print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
        for (i = 1; i <= n_field; i++) panel(field[i], 30 + 280 * (i - 1))
        print "</svg>"
        exit failed
    }' "$@" >"$out.tmp" || { rm -f "$out.tmp"; exit 1; }
mv "$out.tmp" "$out"
