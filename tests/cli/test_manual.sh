# Pages of the manual and completion in shells: made from the tables of options, so each verb and each
# option is in them; read by mandoc, bash and zsh.
. "$ROOT/tests/cli/lib.sh"
verbs=$("$CORTADO" --help | sed -n 's/^  cortado \([a-z_]*\) .*/\1/p')
is some_verbs test "$(echo "$verbs" | wc -w)" -gt 12

# ---- pages
export SOURCE_DATE_EPOCH=86400
bad=
for verb in cortado $verbs; do
    "$CORTADO" info --manual="$verb" >"$verb.1" || bad="$bad $verb"
    case $verb in bench | convert | cortado) continue ;; esac
    "$CORTADO" "$verb" --help | sed -n 's/^  --\([a-z_]*\).*/\1/p' | sort >"$verb.help"
    sed -n 's/^\.It Fl -\([a-z_]*\).*/\1/p' "$verb.1" | sort | cmp - "$verb.help" || bad="$bad options of $verb"
done
is pages_have_all_options test -z "$bad"
[ -z "$bad" ] || echo "    $bad"
is date_is_given grep -q '^\.Dd January 2, 1970$' train.1
for verb in $verbs; do grep -q "^\.Xr cortado-$verb 1" cortado.1 || bad="$bad $verb"; done
is program_names_all_verbs test -z "$bad"
if command -v mandoc >/dev/null; then
    # which other pages are installed here is no matter
    for verb in cortado $verbs; do mandoc -Tlint "$verb.1"; done | grep -v 'referenced manual not found' >lint
    is mandoc_finds_nothing test ! -s lint
    cat lint
    mandoc -Tascii train.1 | sed 's/.\x08//g' >train.txt
    is mandoc_shows_options grep -q -- '--solver=FILE' train.txt
    is mandoc_shows_twins grep -q '(CORTADO_SOLVER)' train.txt
    is mandoc_shows_exit_codes grep -qE '75 +stopped early with a snapshot' train.txt
else
    skip mandoc "no mandoc"
fi
runs no_such_page 2 'manual: "trian" is no verb' "$CORTADO" info --manual=trian

# ---- bash: what it would offer at the end of a line
"$CORTADO" info --completion=bash >cortado.bash
cat >try.bash <<'EOF'
. ./cortado.bash
while IFS='>' read -r line want; do
    COMP_LINE=$line COMP_POINT=${#line}
    _cortado
    [[ "${COMPREPLY[*]}" == "$want" ]] || echo "\"$line\" gives \"${COMPREPLY[*]}\", not \"$want\""
done
EOF
touch solver.prototxt 'a file'
cat >lines <<'EOF'
cortado tr>train
cortado s>sweep serve scale simulate
cortado train --sol>--solver= --solver_mode=
cortado train --solver=sol>solver.prototxt
cortado train --solver=a>a file
cortado train --overlap=>true false
cortado test --overlap=>
cortado train --overw>--overwrite
cortado check --jso>--json --json=
cortado bench s>serve
cortado bench serve --precision=B>BF16
cortado bench comm --precision=B>
cortado convert im>images
cortado convert images --resi>--resize=
cortado nothing --x>
EOF
is bash_reads_it bash -n cortado.bash
bash try.bash <lines >wrong 2>&1
is bash_offers_them test ! -s wrong
cat wrong
printf 'cortado train --overlap=t>--overlap=true\n' >lines.whole
COMP_WORDBREAKS=' ' bash -c 'COMP_WORDBREAKS=" "; . ./try.bash' <lines.whole >wrong 2>&1
is bash_offers_whole_words test ! -s wrong
cat wrong

# ---- zsh: what stands on the line after a tabulator
"$CORTADO" info --completion=zsh >_cortado
cat >try.zsh <<'EOF'
zmodload zsh/zpty
zpty shell zsh -f -i
tell() { zpty -w shell "$1" }
until_() { local got all=; while zpty -r shell got "*$1*"; do all+=$got; [[ $all == *$1* ]] && break; done; print -r -- "$all" }
tell "PS1=; fpath=($PWD \$fpath); autoload -U compinit; compinit -u -D; zstyle ':completion:*' list-colors; unsetopt zle_bracketed_paste; print re''ady"
until_ ready >/dev/null
for line in "$@"; do
    zpty -w -n shell "$line"$'\t'
    sleep 0.3
    zpty -w shell " ; print do''ne"
    until_ done
done
zpty -d shell
EOF
if command -v zsh >/dev/null; then
    is zsh_reads_it zsh -n _cortado
    zsh -f try.zsh 'true || cortado extr' 'true || cortado train --overla' 'true || cortado bench ser' 'true || cortado bench serve --precision=B' \
        'true || cortado train --solver=solv' 2>&1 | sed 's/\x1b\[[0-9;?]*[a-zA-Z]//g' >typed
    for want in 'cortado extract ' 'cortado train --overlap=' 'cortado bench serve ' 'cortado bench serve --precision=BF16' 'cortado train --solver=solver.prototxt'; do
        is "zsh_$(echo "$want" | tr -c 'a-zA-Z0-9\n' _)" grep -qF -- "$want" typed
    done
else
    skip zsh "no zsh"
fi
runs no_such_shell 2 'completion.*bash\|zsh' "$CORTADO" info --completion=fish
finish
