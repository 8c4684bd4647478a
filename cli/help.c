/* What the program prints on itself: its verbs, and the options of one. */
#include <stdio.h>
#include <string.h>

#include "cli/verb.h"
#include "framework/base/log.h"
#include "framework/base/text.h"
#include "runtime/config/features.h"

void ct_help_verbs(FILE *to)
{
    fprintf(to,
            "cortado %s: synchronous training of Caffe nets on supercomputers\n\n"
            "  srun cortado train --solver=solver.prototxt\n\n",
            ct_build_version());
    for (const ct_verb *v = ct_verb_table; v->name != NULL; v++) {
        fprintf(to, "  cortado %-9s %s\n", v->name, v->summary);
    }
    fprintf(to, "\ncortado VERB --help lists the options of a verb. Each has an environment twin,\n"
                "CORTADO_NAME; the command line beats it, and it beats the prototxt.\n"
                "Exit codes:\n");
    for (const ct_exit_code *e = ct_exit_code_table; e->meaning != NULL; e++)
        fprintf(to, "  %2d  %s\n", e->code, e->meaning);
}

static bool is_help(const char *arg)
{
    return (strcmp(arg, "--help") == 0) || (strcmp(arg, "-h") == 0);
}

/* "help" alone is a word only in front: behind a verb's options it may be a value. */
static bool is_word(int i, const char *arg)
{
    return (i < 3) && (strcmp(arg, "help") == 0);
}

bool ct_help_is_asked(int argc, char *const *argv)
{
    for (int i = 1; i < argc; i++)
        if (is_help(argv[i]) || is_word(i, argv[i])) return true;
    return false;
}

ct_status ct_help_fail_verb(const char *name)
{
    const char *known[32], *near;
    int n = 0;

    for (const ct_verb *v = ct_verb_table; v->name != NULL; v++) known[n++] = v->name;
    near = ct_text_nearest(name, known, n);
    if (near != NULL) {
        return CT_FAIL(CT_ERR_CONFIG, "unknown verb \"%s\"; did you mean \"%s\"?", name, near);
    }
    return CT_FAIL(CT_ERR_CONFIG, "unknown verb \"%s\"; cortado --help lists them", name);
}

/* ---- verbs that are followed by a word: bench comm, convert images */

static const char *second_word(const ct_verb_form *form)
{
    const char *space = strchr(form->verb, ' ');

    return (space != NULL) ? space + 1 : NULL;
}

static ct_status fail_kind(const ct_verb *verb, const char *name)
{
    const char *known[32], *near;
    ct_text all = { 0 };
    ct_verb_form form;
    int n = 0;

    for (; (n < 32) && ct_verb_form_of(verb, n, &form); n++) {
        known[n] = second_word(&form);
        ct_text_add(&all, "%s%s", (n > 0) ? ", " : "", known[n]);
    }
    near = (name != NULL) ? ct_text_nearest(name, known, n) : NULL;
    if (name == NULL)
        (void)CT_FAIL(CT_ERR_CONFIG, "cortado %s: what of %s?", verb->name,
                      all.failed ? "its kinds" : all.text);
    else
        (void)CT_FAIL(CT_ERR_CONFIG, "cortado %s: unknown kind \"%s\"%s%s%s (%s)", verb->name, name,
                      (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                      (near != NULL) ? "\"?" : "", all.failed ? "" : all.text);
    ct_text_destroy(&all);
    return CT_ERR_CONFIG;
}

ct_status ct_help_find_kind(const ct_verb *verb, const char *name, int *kind_p)
{
    ct_verb_form form;

    for (int i = 0; (name != NULL) && ct_verb_form_of(verb, i, &form); i++) {
        if (strcmp(second_word(&form), name) != 0) continue;
        *kind_p = i;
        return CT_OK;
    }
    return fail_kind(verb, name);
}

static void print_kinds(const ct_verb *verb)
{
    ct_verb_form form;

    for (int i = 0; ct_verb_form_of(verb, i, &form); i++)
        printf("  %-9s %s\n", second_word(&form), form.summary);
    printf("\ncortado %s KIND --help lists the options of one.\n", verb->name);
}

static ct_status print_verb(const ct_verb *verb, const char *word)
{
    ct_verb_form form;
    int kind = 0;

    (void)ct_verb_form_of(verb, 0, &form);
    if ((second_word(&form) != NULL) && (word != NULL)) {
        CT_TRY(ct_help_find_kind(verb, word, &kind));
        (void)ct_verb_form_of(verb, kind, &form);
        printf("cortado %s: %s\n\n", form.verb, form.summary);
    } else {
        printf("usage: %s\n\n", verb->usage);
        if (second_word(&form) != NULL) {
            print_kinds(verb);
            return CT_OK;
        }
    }
    ct_options_help(form.option, form.n_option, form.verb, stdout);
    return CT_OK;
}

ct_status ct_help(int argc, char *const *argv)
{
    const char *word[2] = { NULL, NULL };
    const ct_verb *verb;
    int n = 0;

    for (int i = 1; (i < argc) && (n < 2); i++)
        if (!is_help(argv[i]) && !is_word(i, argv[i]) && ((n == 0) || (argv[i][0] != '-')))
            word[n++] = argv[i];
    if (word[0] == NULL) {
        ct_help_verbs(stdout);
        return CT_OK;
    }
    verb = ct_verb_find(word[0]);
    return (verb != NULL) ? print_verb(verb, word[1]) : ct_help_fail_verb(word[0]);
}
