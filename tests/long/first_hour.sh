#!/bin/sh
# A new user's first hour: README's two commands and all of the tutorial on a bare Debian, which has git and make alone. Each part
# is timed; a table says how long it took, and how much processor time. Needs root, debootstrap and a network; half an hour.
#   SUITE=bookworm MIRROR=http://deb.debian.org/debian
. "$ROOT/tests/cli/lib.sh"
: "${SUITE:=bookworm}" "${MIRROR:=http://deb.debian.org/debian}"
[ "$(id -u)" = 0 ] || { not_ok first_hour "only root makes a Debian in a folder"; finish; }
command -v debootstrap >/dev/null || { not_ok first_hour "no debootstrap: apt-get install debootstrap"; finish; }
bare=$work/bare

leave() {
    for place in dev sys proc; do umount -l "$bare/$place" 2>/dev/null; done
    cd / && rm -rf --one-file-system "$work"
}
trap leave EXIT

debootstrap --variant=minbase --include=git,make,ca-certificates "$SUITE" "$bare" "$MIRROR" >boot.log 2>&1
is a_bare_debian test $? = 0
[ -x "$bare/usr/bin/make" ] || { tail -n 3 boot.log; finish; }
is no_compiler test ! -e "$bare/usr/bin/cc"
# How this machine reaches the network is no part of what is tested.
cp /etc/resolv.conf "$bare/etc/"
cp /etc/apt/apt.conf.d/* "$bare/etc/apt/apt.conf.d/" 2>/dev/null
cp /etc/pip.conf "$bare/etc/" 2>/dev/null
mount -t proc proc "$bare/proc" && mount -t sysfs -o ro sysfs "$bare/sys" && mount --rbind /dev "$bare/dev" && mount --make-rslave "$bare/dev"
is mounted test $? = 0
git clone -q "$ROOT" "$bare/root/cortado"
is cloned test $? = 0

# part NAME COMMAND: runs it there; "seconds, processor seconds" go into the table.
part() {
    cat >"$bare/part.sh" <<EOF2
set -e
$2
times >/times
EOF2
    begun=$(date +%s)
    chroot "$bare" env -i HOME=/root USER=root OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" PIP_INDEX_URL="${PIP_INDEX_URL:-}" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh /part.sh >"$1.log" 2>&1
    code=$?
    is "$1" test $code = 0
    [ $code = 0 ] || { grep -A 8 '^not ok' "$1.log"; tail -n 5 "$1.log"; }
    seconds=$(($(date +%s) - begun))
    # the shell's `times`: of itself, then of its children, as 1m2.5s 0m3.25s
    processor=$(sed 's/[ms]/ /g' "$bare/times" | awk '{ t += 60 * $1 + $2 + 60 * $3 + $4 } END { printf "%.0f", t }')
    echo "$1 $seconds $processor" >>table
}

part demo 'cd /root/cortado && make demo'
part build 'cd /root/cortado && make'
part tutorial 'mkdir /root/tutorial && cd /root/tutorial
export CORTADO_HOME=/root/cortado PATH=/root/cortado:$PATH
python3 /root/cortado/tests/cli/tutorial.py /root/cortado/docs/tutorial.md'
is tutorial_ran_commands [ "$(grep -c '^ok' tutorial.log)" -ge 30 ]
echo "part seconds processor_seconds"
cat table
awk '{ s += $2; p += $3 } END { print "sum", s, p }' table
finish
