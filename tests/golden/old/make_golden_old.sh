#!/bin/sh
# Writes NAME.caffe.prototxt beside each NAME.prototxt of this folder with Caffe's own upgrade tools:
#   make_golden_old.sh FOLDER-OF-CAFFE'S-TOOLS
set -eu
tools=$1
cd "$(dirname "$0")"
for f in *.prototxt; do
    case $f in *.caffe.prototxt) continue ;; solver*) kind=solver ;; *) kind=net ;; esac
    "$tools/upgrade_${kind}_proto_text" "$f" "${f%.prototxt}.caffe.prototxt"
done
