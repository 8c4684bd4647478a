/* Scripts with which shells complete verbs, options and their values. */
#include <stdio.h>
#include <string.h>

#include "cli/info/manual.h"
#include "framework/base/text.h"

/* Whether a value is the name of a file or a folder. */
static bool is_path(const ct_option *op)
{
    static const char *const word[] = { "FILE", "DIR", "PATH", "SET" };

    for (size_t i = 0; (op->value != NULL) && (i < sizeof(word) / sizeof(word[0])); i++)
        if (strstr(op->value, word[i]) != NULL) return true;
    return false;
}

/* The second word of a form, such as comm of `bench comm`; NULL: there is none. */
static const char *kind_of(const ct_verb_form *form)
{
    const char *space = strchr(form->verb, ' ');

    return (space != NULL) ? space + 1 : NULL;
}

/* ---- bash */

/* --name, with "=" where a value follows. */
static void bash_options(ct_text *to, const ct_verb_form *form)
{
    ct_text_add(to, "    '%s') options='", form->verb);
    for (int i = 0; i < form->n_option; i++) {
        const ct_option *op = &form->option[i];

        if (!ct_option_serves(op, form->verb)) continue;
        if ((op->kind == CT_OPTION_FLAG) || (op->kind == CT_OPTION_MAYBE))
            ct_text_add(to, "--%s ", op->name);
        if (op->kind != CT_OPTION_FLAG) ct_text_add(to, "--%s= ", op->name);
    }
    ct_text_add(to, "--help' ;;\n");
}

static void bash_values(ct_text *to, const ct_verb_form *form)
{
    for (int i = 0; i < form->n_option; i++) {
        const ct_option *op = &form->option[i];

        if (!ct_option_serves(op, form->verb) || (op->value == NULL)) continue;
        if (op->kind == CT_OPTION_CHOICE) {
            ct_text_add(to, "    '%s %s') values='", form->verb, op->name);
            for (const char *c = op->value; *c != '\0'; c++)
                ct_text_add_bytes(to, (*c == '|') ? " " : c, 1);
            ct_text_add(to, "' ;;\n");
        } else if (is_path(op)) {
            ct_text_add(to, "    '%s %s') values=FILES ;;\n", form->verb, op->name);
        }
    }
}

typedef void (*of_form)(ct_text *to, const ct_verb_form *form);

static void of_all(ct_text *to, of_form add)
{
    ct_verb_form form;

    for (const ct_verb *v = ct_verb_table; v->name != NULL; v++)
        for (int i = 0; ct_verb_form_of(v, i, &form); i++) add(to, &form);
}

static void bash_kinds(ct_text *to, const ct_verb *v)
{
    ct_verb_form form;

    if (!ct_verb_form_of(v, 0, &form) || (kind_of(&form) == NULL)) return;
    ct_text_add(to, "    %s) kinds='", v->name);
    for (int i = 0; ct_verb_form_of(v, i, &form); i++)
        ct_text_add(to, "%s%s", (i > 0) ? " " : "", kind_of(&form));
    ct_text_add(to, "' ;;\n");
}

/* The words are read off the line itself: bash cuts --name=value into three. */
static void add_bash(ct_text *to)
{
    ct_text_add(to, "# Completion of cortado in bash; made by: cortado info --completion=bash\n"
                    "_cortado() {\n"
                    "    local line=${COMP_LINE:0:COMP_POINT} cur verb kind form option\n"
                    "    local options= values= kinds= verbs='");
    for (const ct_verb *v = ct_verb_table; v->name != NULL; v++) ct_text_add(to, "%s ", v->name);
    ct_text_add(to,
                "--help --version'\n"
                "    cur=${line##*[[:space:]]}\n"
                "    read -r _ verb kind _ <<<\"$line\"\n"
                "    COMPREPLY=()\n"
                "    if [[ $line =~ ^[[:space:]]*[^[:space:]]+[[:space:]]+[^[:space:]]*$ ]]; then\n"
                "        COMPREPLY=($(compgen -W \"$verbs\" -- \"$cur\"))\n"
                "        return\n"
                "    fi\n"
                "    form=$verb\n"
                "    case $verb in\n");
    for (const ct_verb *v = ct_verb_table; v->name != NULL; v++) bash_kinds(to, v);
    ct_text_add(to, "    esac\n"
                    "    if [[ -n $kinds ]]; then\n"
                    "        if [[ $kind == \"$cur\" ]]; then\n"
                    "            COMPREPLY=($(compgen -W \"$kinds\" -- \"$cur\"))\n"
                    "            return\n"
                    "        fi\n"
                    "        form=\"$verb $kind\"\n"
                    "    fi\n"
                    "    if [[ $cur != --*=* ]]; then\n"
                    "        case $form in\n");
    of_all(to, bash_options);
    ct_text_add(to, "        esac\n"
                    "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
                    "        [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null\n"
                    "        return\n"
                    "    fi\n"
                    "    option=${cur%%%%=*} option=${option#--} option=${option//-/_}\n"
                    "    cur=${cur#*=}\n"
                    "    case \"$form $option\" in\n");
    of_all(to, bash_values);
    ct_text_add(
        to, "    esac\n"
            "    if [[ $values == FILES ]]; then\n"
            "        compopt -o filenames 2>/dev/null\n"
            "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
            "    else\n"
            "        COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
            "    fi\n"
            "    [[ $COMP_WORDBREAKS == *=* ]] || COMPREPLY=(\"${COMPREPLY[@]/#/--$option=}\")\n"
            "}\n"
            "complete -F _cortado cortado\n");
}

/* ---- zsh */

/* In single quotes, inside brackets, where a colon ends what is said. */
static void zsh_text(ct_text *to, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            ct_text_add(to, "'\\''");
        else if (strchr(":[]\\", *text) != NULL)
            ct_text_add(to, "\\%c", *text);
        else
            ct_text_add_bytes(to, text, 1);
    }
}

static void zsh_option(ct_text *to, const ct_option *op)
{
    bool flag = (op->kind == CT_OPTION_FLAG), maybe = (op->kind == CT_OPTION_MAYBE);

    ct_text_add(to, " \\\n            '%s--%s%s[", (op->kind == CT_OPTION_LIST) ? "*" : "",
                op->name,
                flag    ? ""
                : maybe ? "=-"
                        : "=");
    zsh_text(to, op->help);
    ct_text_add(to, "]");
    if (op->value != NULL) {
        ct_text_add(to, maybe ? "::" : ":");
        zsh_text(to, op->value);
        ct_text_add(to, ":");
        if (op->kind == CT_OPTION_CHOICE) {
            ct_text_add(to, "(");
            for (const char *c = op->value; *c != '\0'; c++)
                ct_text_add_bytes(to, (*c == '|') ? " " : c, 1);
            ct_text_add(to, ")");
        } else if (is_path(op)) {
            ct_text_add(to, "_files");
        }
    }
    ct_text_add(to, "'");
}

static void zsh_form(ct_text *to, const ct_verb_form *form)
{
    ct_text_add(to, "    '%s')\n        _arguments -S '--help[list the options]'", form->verb);
    for (int i = 0; i < form->n_option; i++)
        if (ct_option_serves(&form->option[i], form->verb)) zsh_option(to, &form->option[i]);
    ct_text_add(to, " ;;\n");
}

static void zsh_word(ct_text *to, const char *word, const char *what)
{
    ct_text_add(to, "            '%s:", word);
    zsh_text(to, what);
    ct_text_add(to, "'\n");
}

/* Verbs with words behind them: the word belongs to the name of the form. */
static void zsh_kinds(ct_text *to, const ct_verb *v)
{
    ct_verb_form form;

    if (!ct_verb_form_of(v, 0, &form) || (kind_of(&form) == NULL)) return;
    ct_text_add(to, "    %s)\n        words_of=(\n", v->name);
    for (int i = 0; ct_verb_form_of(v, i, &form); i++) zsh_word(to, kind_of(&form), form.summary);
    ct_text_add(to, "        ) ;;\n");
}

static void add_zsh(ct_text *to)
{
    ct_text_add(to, "#compdef cortado\n"
                    "# Completion of cortado in zsh; made by: cortado info --completion=zsh\n"
                    "_cortado() {\n"
                    "    local form\n"
                    "    local -a words_of\n"
                    "    if (( CURRENT == 2 )); then\n"
                    "        words_of=(\n");
    for (const ct_verb *v = ct_verb_table; v->name != NULL; v++) zsh_word(to, v->name, v->summary);
    ct_text_add(to, "        )\n"
                    "        _describe verb words_of\n"
                    "        return\n"
                    "    fi\n"
                    "    form=$words[2]\n"
                    "    case $form in\n");
    for (const ct_verb *v = ct_verb_table; v->name != NULL; v++) zsh_kinds(to, v);
    ct_text_add(to, "    esac\n"
                    "    shift words\n"
                    "    (( CURRENT-- ))\n"
                    "    if (( $#words_of )); then\n"
                    "        if (( CURRENT == 2 )); then\n"
                    "            _describe kind words_of\n"
                    "            return\n"
                    "        fi\n"
                    "        form=\"$form $words[2]\"\n"
                    "        shift words\n"
                    "        (( CURRENT-- ))\n"
                    "    fi\n"
                    "    case $form in\n");
    of_all(to, zsh_form);
    ct_text_add(to, "    esac\n}\n_cortado \"$@\"\n");
}

ct_status ct_completion_print(const char *shell)
{
    ct_text text = { 0 };
    ct_status status = CT_OK;

    if (strcmp(shell, "bash") == 0)
        add_bash(&text);
    else
        add_zsh(&text);
    if (text.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a script");
    else
        fputs(text.text, stdout);
    ct_text_destroy(&text);
    return status;
}
