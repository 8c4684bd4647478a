#!/bin/sh
# What `make install` brings, and `make uninstall` takes away again.
#   scripts/install.sh list                              files of the sources that are installed
#   scripts/install.sh install PROGRAM PREFIX [DESTDIR]
#   scripts/install.sh uninstall PREFIX [DESTDIR]
# The pages, models, machine files and scripts are installed, and every file that one of them names
# by its path: a command or a link in an installed page works there, too. A folder that a page names
# comes whole, unless it holds code: of code only the files come that a page names. The library, its
# header and what pkg-config says of it come from the program's folder, where they were built.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
manifest=share/cortado/manifest # what was installed, relative to PREFIX

base() {
    for f in LICENSE VERSION *.md; do echo "$f"; done
    find docs scripts models examples topology/machines -type f ! -name '*.pyc' ! -name '*.mk' ! -name '.*'
}

# Paths that the files of standard input name: words that begin with a folder of the sources.
named() {
    tr '\n' '\0' | xargs -0 grep -IohE '(docs|scripts|models|tests|topology|framework|layers|comm|planner|runtime|serve|library|include|python|cli)/[A-Za-z0-9_./*-]+' |
        sed 's/[./]*$//' | sort -u
}

# The files behind such a path, which may hold "*"; patterns of names of code are left alone.
files_of() {
    case $1 in
    docs/* | scripts/* | tests/bench/* | tests/golden/*) ;;
    *'*'*) return ;;
    esac
    for path in $1; do
        if [ -f "$path" ]; then
            echo "$path"
        elif [ -d "$path" ]; then
            case $path in
            tests/bench | tests/golden/* | tests/emulated_cuda | docs/* | scripts/* | models/* | topology/machines)
                find "$path" -type f ! -name '*.pyc' ! -name '.*' ;;
            esac
        fi
    done
}

# What scripts name in turn is wanted too: they call others.
list() {
    cd "$root"
    base | sort -u >"$scratch/all"
    cp "$scratch/all" "$scratch/new"
    while [ -s "$scratch/new" ]; do
        grep -E '\.md$|^(scripts|tests/bench)/.*\.(sh|py|sbatch)$' "$scratch/new" | grep -vF scripts/install.sh | named >"$scratch/named" || true
        while read -r path; do files_of "$path"; done <"$scratch/named" | sort -u | comm -13 "$scratch/all" - >"$scratch/new"
        sort -u "$scratch/all" "$scratch/new" -o "$scratch/all"
    done
    cat "$scratch/all"
}

# What pkg-config says of the library below a PREFIX.
write_pc() { # PREFIX PRIVATE_LIBS
    cat <<EOF
prefix=$1
Name: cortado
Description: deep networks: nets and weights of Caffe, forward and backward
Version: $(cat "$root/VERSION")
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -Wl,-rpath,\${prefix}/lib -lcortado
Libs.private: $2
EOF
}

put_file() { # MODE FILE TARGET PATH: and into the manifest
    install -D -m "$1" "$2" "$3/$4"
    echo "$4" >>"$scratch/manifest"
}

put_library() { # BUILT TARGET PREFIX
    [ -f "$1/libcortado.so" ] || return 0
    soname=$(readlink "$1/libcortado.so")
    put_file 755 "$1/$soname" "$2" "lib/$soname"
    ln -sfn "$soname" "$2/lib/libcortado.so"
    echo lib/libcortado.so >>"$scratch/manifest"
    put_file 644 "$1/libcortado.a" "$2" lib/libcortado.a
    put_file 644 "$root/include/cortado/cortado.h" "$2" include/cortado/cortado.h
    write_pc "$3" "$(cat "$1/private_libs")" >"$scratch/cortado.pc"
    put_file 644 "$scratch/cortado.pc" "$2" lib/pkgconfig/cortado.pc
}

# Removes what the manifest of a PREFIX lists, and folders of ours that are empty then.
take_away() {
    [ -f "$1/$manifest" ] || return 1
    while read -r path; do
        case $path in /* | *..*) continue ;; esac
        rm -f "$1/$path"
    done <"$1/$manifest"
    rm -f "$1/$manifest"
    [ ! -d "$1/share/cortado" ] || find "$1/share/cortado" -depth -type d -exec rmdir {} + 2>/dev/null || true
    for folder in bin share lib/pkgconfig include/cortado; do
        (cd "$1" && rmdir -p "$folder") 2>/dev/null || true # what others use stays
    done
}

put() { # PROGRAM TARGET PREFIX
    take_away "$2" || true # an earlier version may have had other files
    list >"$scratch/list"
    : >"$scratch/manifest"
    put_file 755 "$1" "$2" bin/cortado
    put_library "$(dirname "$1")/lib" "$2" "$3"
    cd "$root"
    while read -r path; do
        mode=644
        [ ! -x "$path" ] || mode=755
        put_file $mode "$path" "$2" "share/cortado/$path"
    done <"$scratch/list"
    install -m 644 "$scratch/manifest" "$2/$manifest"
    echo "cortado is in $2/bin, its pages, models and scripts in $2/share/cortado"
}

export LC_ALL=C # one order for sort and comm
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cortado-install.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
case ${1:-} in
list) list ;;
install)
    program=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
    case ${4:-}$3 in /*) ;; *) echo "install: PREFIX=$3 is not a path from /" >&2 && exit 2 ;; esac
    put "$program" "${4:-}$3" "$3"
    ;;
uninstall)
    take_away "${3:-}$2" || {
        echo "uninstall: ${3:-}$2/$manifest is not there: nothing was installed there by make install" >&2
        exit 2
    }
    echo "cortado is gone from ${3:-}$2"
    ;;
*) sed -n '2,5s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
