#!/bin/sh
# Prints a C header that holds a file as the text NAME. Usage: text_header.sh NAME FILE
set -eu
printf 'static const char %s[] =\n' "$1"
sed 's/\\/\\\\/g; s/"/\\"/g; s/^/    "/; s/$/\\n"/' "$2"
printf '    ;\n'
