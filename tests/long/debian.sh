#!/bin/sh
# Debian packages of this tree: built by dpkg-buildpackage, without errors of lintian but that the maintainer's address is made up,
# and what they hold runs. Needs debhelper and lintian; some minutes.
. "$ROOT/tests/cli/lib.sh"
for tool in dpkg-buildpackage dh lintian; do
    command -v $tool >/dev/null || { not_ok debian "no $tool: apt-get install debhelper lintian"; finish; }
done
mkdir cortado-0.1.0 root
(cd "$ROOT" && git ls-files -z | xargs -0 tar -cf -) | tar -xf - -C cortado-0.1.0
cp -r "$ROOT/packaging/debian" cortado-0.1.0/
(cd cortado-0.1.0 && dpkg-buildpackage -b -us -uc) >build.log 2>&1
is builds test $? = 0
tail -n 20 build.log >tail.log
is three_packages test "$(ls *.deb | grep -cE '^(cortado|libcortado0|libcortado-dev)_')" = 3
lintian --fail-on error --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog *.changes >lintian.log 2>&1
is lintian_finds_no_errors test $? = 0
cat lintian.log
for deb in *.deb; do case $deb in *dbgsym*) ;; *) dpkg -x "$deb" root ;; esac; done
lib=$(dirname "$(find root/usr/lib -name 'libcortado.so.0')")
runs runs 0 '^cortado ' root/usr/bin/cortado info
is has_pages test -s root/usr/share/man/man1/cortado-train.1.gz
printf '#include <stdio.h>\n#include <cortado/cortado.h>\nint main(void) { return puts(cortado_version()) < 0; }\n' >user.c
cc -Iroot/usr/include user.c -L"$lib" -lcortado -o user >out 2>&1
is library_links test $? = 0
runs library_runs 0 "$(cat "$ROOT/VERSION")" env LD_LIBRARY_PATH="$lib" ./user
finish
