/* Pages of the manual, as mdoc(7). */
#include "cli/info/manual.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "framework/base/text.h"

/* Words in lines of at most WIDTH bytes, of which no character is a command. */
static void add_plain(ct_text *to, const char *text)
{
    enum { WIDTH = 78 };
    size_t column = 0;

    while (*text != '\0') {
        size_t n = strcspn(text, " \n");

        if (column > 0) {
            /* a sentence begins a line, so that its end gets its space */
            bool fits = (column + 1 + n <= WIDTH) && (text[-2] != '.');

            ct_text_add(to, fits ? " " : "\n");
            column = fits ? column + 1 : 0;
        }
        if ((column == 0) && ((*text == '.') || (*text == '\''))) ct_text_add(to, "\\&");
        for (size_t i = 0; i < n; i++)
            if (text[i] == '\\')
                ct_text_add(to, "\\e");
            else
                ct_text_add_bytes(to, text + i, 1);
        column += n;
        text += n + strspn(text + n, " \n");
    }
}

/* An argument of a macro: neither a macro's name nor a mark between arguments. */
static void add_argument(ct_text *to, const char *text)
{
    ct_text_add(to, " \\&");
    for (; *text != '\0'; text++) {
        if (*text == ' ')
            ct_text_add(to, "\\ ");
        else if (*text == '"')
            ct_text_add(to, "\\(dq");
        else
            ct_text_add_bytes(to, text, 1);
    }
}

static void add_head(ct_text *to, const char *name, const char *summary)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t now = (epoch != NULL) ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    char date[40], upper[64];
    struct tm day;
    size_t n = strlen(name);

    if (gmtime_r(&now, &day) == NULL) memset(&day, 0, sizeof(day));
    strftime(date, sizeof(date), "%B %-d, %Y", &day);
    for (size_t i = 0; (i <= n) && (i < sizeof(upper)); i++)
        upper[i] = (char)(((name[i] >= 'a') && (name[i] <= 'z')) ? name[i] - 'a' + 'A' : name[i]);
    upper[sizeof(upper) - 1] = '\0';
    ct_text_add(to, ".Dd %s\n.Dt %s 1\n.Os\n.Sh NAME\n.Nm %s\n.Nd ", date, upper, name);
    add_plain(to, summary);
    ct_text_add(to, "\n.Sh SYNOPSIS\n");
}

static void add_option(ct_text *to, const ct_option *op)
{
    char twin[80];

    ct_option_twin(op->name, twin, sizeof(twin));
    ct_text_add(to, ".It Fl -%s", op->name);
    if (op->value != NULL) {
        ct_text_add(to, (op->kind == CT_OPTION_MAYBE) ? " Ns Oo \\&= Ns Ar" : " Ns = Ns Ar");
        add_argument(to, op->value);
        if (op->kind == CT_OPTION_MAYBE) ct_text_add(to, " Oc");
    }
    ct_text_add(to, "\n");
    add_plain(to, op->help);
    ct_text_add(to, "\n.Pq Ev %s\n", twin);
}

static void add_form(ct_text *to, const ct_verb_form *form)
{
    ct_text_add(to, ".Bl -tag -width Ds\n");
    for (int i = 0; i < form->n_option; i++)
        if (ct_option_serves(&form->option[i], form->verb)) add_option(to, &form->option[i]);
    ct_text_add(to, ".El\n");
}

static void add_end(ct_text *to)
{
    ct_text_add(to, ".Sh EXIT STATUS\n.Bl -tag -width Ds -compact\n");
    for (const ct_exit_code *e = ct_exit_code_table; e->meaning != NULL; e++)
        ct_text_add(to, ".It %d\n%s\n", e->code, e->meaning);
    ct_text_add(to, ".El\n.Sh SEE ALSO\n");
}

static void add_verb(ct_text *to, const ct_verb *verb)
{
    ct_verb_form form;
    char name[64];

    snprintf(name, sizeof(name), "cortado-%s", verb->name);
    add_head(to, name, verb->summary);
    add_plain(to, verb->usage);
    ct_text_add(to, "\n.Sh DESCRIPTION\nEach option has a twin in the environment, which is named "
                    "behind it.\nThe command line beats the environment, and this beats files.\n");
    for (int i = 0; ct_verb_form_of(verb, i, &form); i++) {
        if (verb->form != NULL) {
            ct_text_add(to, ".Ss cortado %s\n", form.verb);
            add_plain(to, form.summary);
            ct_text_add(to, "\n");
        }
        add_form(to, &form);
    }
    add_end(to);
    ct_text_add(to, ".Xr cortado 1\n");
}

/* The verb whose name comes next in the alphabet; NULL: none does. */
static const ct_verb *next_verb(const char *name)
{
    const ct_verb *next = NULL;

    for (const ct_verb *v = ct_verb_table; v->name != NULL; v++)
        if ((strcmp(v->name, name) > 0) && ((next == NULL) || (strcmp(v->name, next->name) < 0)))
            next = v;
    return next;
}

static void add_program(ct_text *to)
{
    add_head(to, "cortado", "deep networks on supercomputers: training, plans, serving");
    ct_text_add(to, ".Nm\n.Ar verb\n.Op Fl -option Ns = Ns Ar value ...\n.Nm\n.Ar verb\n.Fl -help\n"
                    ".Sh DESCRIPTION\nEach verb has a page of its own.\n.Bl -tag -width Ds\n");
    for (const ct_verb *v = ct_verb_table; v->name != NULL; v++) {
        ct_text_add(to, ".It Nm Cm %s\n", v->name);
        add_plain(to, v->summary);
        ct_text_add(to, "\n");
    }
    ct_text_add(to, ".El\n");
    add_end(to);
    for (const ct_verb *v = next_verb(""); v != NULL; v = next_verb(v->name))
        ct_text_add(to, ".Xr cortado-%s 1%s\n", v->name, (next_verb(v->name) != NULL) ? " ," : "");
}

ct_status ct_manual_print(const char *name)
{
    const ct_verb *verb = ct_verb_find(name);
    ct_text text = { 0 };
    ct_status status = CT_OK;

    if (verb != NULL)
        add_verb(&text, verb);
    else if (strcmp(name, "cortado") == 0)
        add_program(&text);
    else
        return CT_FAIL(CT_ERR_CONFIG,
                       "--manual: \"%s\" is no verb; cortado --help lists them, and cortado has a "
                       "page, too",
                       name);
    if (text.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a page");
    else
        fputs(text.text, stdout);
    ct_text_destroy(&text);
    return status;
}
