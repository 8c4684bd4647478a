# Writing where there is no room: a full disk, and a file that may not grow. One line says so, the exit
# code is 3, nothing is left behind.
. "$ROOT/tests/cli/lib.sh"
digits="convert digits --count=6000 --seed=1"
one_line() { test "$(grep -c "^E" out)" = 1; }

# the shell's units are 512 or 1 024 bytes; 6 000 digits are 5 MB and more
runs lmdb_at_a_limit 3 'cannot write LMDB limited/train_lmdb: File too large' sh -c 'ulimit -f 500; exec "$0" $1 --to=limited' "$CORTADO" "$digits"
is one_line_says_so one_line
is nothing_is_left test -z "$(find limited -type f 2>/dev/null)"
runs single_file_at_a_limit 3 'cannot write LMDB .*: File too large' sh -c 'ulimit -f 500; exec "$0" $1 --to=shards --shards=2' "$CORTADO" "$digits"

if [ "$(id -u)" = 0 ] && mkdir small && mount -t tmpfs -o size=1m none small 2>/dev/null; then
    trap 'umount "$work/small" 2>/dev/null; rm -rf "$work"' EXIT
    runs lmdb_on_a_full_disk 3 'cannot write LMDB small/d/train_lmdb: No space left on device' "$CORTADO" $digits --to=small/d
    is one_line_of_a_full_disk one_line
    is nothing_is_left_there test -z "$(find small -type f)"
    # no room for the folder, and none for the first page
    dd if=/dev/zero of=small/fill bs=4096 2>/dev/null
    runs lmdb_on_a_disk_full_before 3 'No space left on device' "$CORTADO" $digits --to=small/d
    umount small
else
    skip lmdb_on_a_full_disk "needs root and a mount"
fi
finish
