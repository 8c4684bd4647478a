#!/bin/sh
# What `make install` brings, and `make uninstall` takes away again.
#   scripts/install.sh list                              files of the sources that are installed
#   scripts/install.sh install PROGRAM PREFIX [DESTDIR]
#   scripts/install.sh uninstall PREFIX [DESTDIR]
# In the environment: bindir, libdir, includedir, datadir, mandir, as GNU's programs know them, where
# they are not those below PREFIX; STRIP, a program that strips what is installed.
# The pages, models, machine files and scripts are installed, and every file that one of them names
# by its path: a command or a link in an installed page works there, too. A folder that a page names
# comes whole, unless it holds code: of code only the files come that a page names. The library, its
# header and what pkg-config says of it come from the program's folder, where they were built.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)

# Where things go below PREFIX: all paths from /, and DESTDIR in front of them.
set_folders() { # PREFIX DESTDIR
    prefix=$1 destdir=$2
    bindir=${bindir:-$prefix/bin} libdir=${libdir:-$prefix/lib} includedir=${includedir:-$prefix/include}
    datadir=${datadir:-$prefix/share}
    mandir=${mandir:-$datadir/man}
    share=$datadir/cortado
    manifest=$share/manifest # what was installed
    for folder in "$bindir" "$libdir" "$includedir" "$datadir" "$mandir"; do
        case $folder in /*) ;; *) echo "install: $folder is not a path from /" >&2 && exit 2 ;; esac
    done
}

base() {
    for f in LICENSE VERSION *.md; do echo "$f"; done
    find docs scripts models examples topology/machines -type f ! -name '*.pyc' ! -name '*.mk' ! -name '.*'
}

# Paths that the files of standard input name: words that begin with a folder of the sources.
named() {
    tr '\n' '\0' | xargs -0 grep -IohE '(docs|scripts|models|packaging|tests|topology|framework|layers|comm|planner|runtime|serve|library|include|python|cli)/[A-Za-z0-9_./*-]+' |
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

# What pkg-config says of the library.
write_pc() { # PRIVATE_LIBS
    cat <<EOF
prefix=$prefix
libdir=$libdir
includedir=$includedir
Name: cortado
Description: deep networks: nets and weights of Caffe, forward and backward
Version: $(cat "$root/VERSION")
Cflags: -I\${includedir}
Libs: -L\${libdir} -Wl,-rpath,\${libdir} -lcortado
Libs.private: $1
EOF
}

put_file() { # MODE FILE PATH: and into the manifest
    install -D -m "$1" "$2" "$destdir$3"
    echo "$3" >>"$scratch/manifest"
}

put_binary() { # FILE PATH
    put_file 755 "$1" "$2"
    [ -z "${STRIP:-}" ] || "$STRIP" --strip-unneeded "$destdir$2"
}

put_library() { # BUILT
    [ -f "$1/libcortado.so" ] || return 0
    soname=$(readlink "$1/libcortado.so")
    put_binary "$1/$soname" "$libdir/$soname"
    ln -sfn "$soname" "$destdir$libdir/libcortado.so"
    echo "$libdir/libcortado.so" >>"$scratch/manifest"
    put_file 644 "$1/libcortado.a" "$libdir/libcortado.a"
    [ -z "${STRIP:-}" ] || "$STRIP" --strip-debug "$destdir$libdir/libcortado.a"
    put_file 644 "$root/include/cortado/cortado.h" "$includedir/cortado/cortado.h"
    write_pc "$(cat "$1/private_libs")" >"$scratch/cortado.pc"
    put_file 644 "$scratch/cortado.pc" "$libdir/pkgconfig/cortado.pc"
}

# The simulator, where it was built: the program looks for it there.
put_simulator() { # PROGRAM
    sim=$(dirname "$1")/../smpicc/cortado-sim
    [ ! -x "$sim" ] || put_binary "$sim" "$(dirname "$bindir")/libexec/cortado/cortado-sim"
}

# Pages of the manual and completion, which the program itself writes: one that is built for another
# processor cannot. Their date is that of the sources.
put_manual() { # PROGRAM
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(stat -c %Y "$root/CHANGELOG.md")}
    export SOURCE_DATE_EPOCH
    if ! "$1" --help >"$scratch/help" 2>&1; then
        echo "install: $1 does not run here, so there are no pages of the manual" >&2
        return 0
    fi
    for verb in cortado $(sed -n 's/^  cortado \([a-z_]*\) .*/\1/p' "$scratch/help"); do
        name=cortado-$verb
        [ "$verb" != cortado ] || name=cortado
        "$1" info --manual="$verb" >"$scratch/page"
        put_file 644 "$scratch/page" "$mandir/man1/$name.1"
    done
    "$1" info --completion=bash >"$scratch/page"
    put_file 644 "$scratch/page" "$datadir/bash-completion/completions/cortado"
    "$1" info --completion=zsh >"$scratch/page"
    put_file 644 "$scratch/page" "$datadir/zsh/site-functions/_cortado"
}

# For environment modules and Lmod: `module use PREFIX/share/modulefiles`.
put_module() {
    version=$(cat "$root/VERSION")
    cat >"$scratch/module" <<EOF
#%Module1.0
proc ModulesHelp { } { puts stderr "cortado $version: deep networks on CPU and GPU nodes; man cortado" }
module-whatis "cortado $version: deep networks on CPU and GPU nodes, in C on MPI"
conflict cortado
prepend-path PATH $bindir
prepend-path LD_LIBRARY_PATH $libdir
prepend-path LIBRARY_PATH $libdir
prepend-path CPATH $includedir
prepend-path PKG_CONFIG_PATH $libdir/pkgconfig
prepend-path MANPATH $mandir
EOF
    put_file 644 "$scratch/module" "$datadir/modulefiles/cortado/$version"
}

# Removes what the manifest lists, and the folders that are empty then: what others put there stays.
take_away() {
    [ -f "$destdir$manifest" ] || return 1
    grep '^/' "$destdir$manifest" | grep -vF /../ >"$scratch/gone" || true
    echo "$manifest" >>"$scratch/gone"
    while read -r path; do rm -f "$destdir$path"; done <"$scratch/gone"
    sed 's#/[^/]*$##' "$scratch/gone" | sort -ru | while read -r folder; do
        case $folder in
        "$prefix"/*) (cd "$destdir$prefix" && rmdir -p "${folder#"$prefix"/}") 2>/dev/null || true ;;
        *) rmdir "$destdir$folder" 2>/dev/null || true ;;
        esac
    done
}

put() { # PROGRAM
    take_away || true # an earlier version may have had other files
    list >"$scratch/list"
    : >"$scratch/manifest"
    put_binary "$1" "$bindir/cortado"
    put_library "$(dirname "$1")/lib"
    put_simulator "$1"
    put_manual "$1"
    put_module
    cd "$root"
    while read -r path; do
        mode=644
        [ ! -x "$path" ] || mode=755
        put_file $mode "$path" "$share/$path"
    done <"$scratch/list"
    install -m 644 "$scratch/manifest" "$destdir$manifest"
    echo "cortado is in $destdir$bindir, its pages, models and scripts in $destdir$share"
}

export LC_ALL=C # one order for sort and comm
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cortado-install.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
case ${1:-} in
list) list ;;
install)
    program=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
    case ${4:-}$3 in /*) ;; *) echo "install: PREFIX=$3 is not a path from /" >&2 && exit 2 ;; esac
    set_folders "$3" "${4:-}"
    put "$program"
    ;;
uninstall)
    set_folders "$2" "${3:-}"
    take_away || {
        echo "uninstall: $destdir$manifest is not there: nothing was installed there by make install" >&2
        exit 2
    }
    echo "cortado is gone from $destdir$prefix"
    ;;
*) sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
