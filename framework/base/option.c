#include "framework/base/option.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/number.h"
#include "framework/base/text.h"

#define MAX_NEAR 64 /* options of a verb among which a near name is looked for */

typedef struct entry {
    char *text;
    ct_origin origin;
    int option;
    char *place; /* of FILE */
} entry;

struct ct_options {
    const ct_option *table;
    int n_option;
    entry *list; /* in order of rising precedence */
    int n;
};

bool ct_option_serves(const ct_option *op, const char *verb)
{
    size_t n = strlen(verb);

    if (strcmp(op->verbs, "*") == 0) return true;
    for (const char *at = op->verbs; (at = strstr(at, verb)) != NULL; at += n) {
        if (((at == op->verbs) || (at[-1] == ' ')) && ((at[n] == ' ') || (at[n] == '\0'))) {
            return true;
        }
    }
    return false;
}

static int find(const ct_option *table, int n, const char *verb, const char *name)
{
    for (int i = 0; i < n; i++) {
        if ((strcmp(table[i].name, name) == 0) && ct_option_serves(&table[i], verb)) return i;
    }
    return -1;
}

/* Several entries may have the name, each for verbs of its own. */
static ct_status fail_of_others(const ct_option *table, int n, const char *verb, const char *name)
{
    ct_text verbs = { 0 };
    ct_status status;

    for (int i = 0; i < n; i++)
        if (strcmp(table[i].name, name) == 0) ct_text_add(&verbs, " %s", table[i].verbs);
    status = CT_FAIL(CT_ERR_CONFIG, "cortado %s: option --%s belongs to:%s", verb, name,
                     verbs.failed ? "" : verbs.text);
    ct_text_destroy(&verbs);
    return status;
}

static ct_status fail_unknown(const ct_option *table, int n, const char *verb, const char *name)
{
    const char *known[MAX_NEAR], *near;
    int n_known = 0;
    bool sets;

    for (int i = 0; (i < n) && (n_known < MAX_NEAR); i++) {
        if (ct_option_serves(&table[i], verb)) known[n_known++] = table[i].name;
    }
    near = ct_text_nearest(name, known, n_known);
    sets = (find(table, n, verb, "set") >= 0);
    for (int i = 0; i < n; i++) {
        if (strcmp(table[i].name, name) == 0) return fail_of_others(table, n, verb, name);
    }
    if (near != NULL) {
        return CT_FAIL(CT_ERR_CONFIG, "cortado %s: unknown option --%s; did you mean --%s?", verb,
                       name, near);
    }
    return CT_FAIL(CT_ERR_CONFIG, "cortado %s: unknown option --%s; %s%s%ssee cortado %s --help",
                   verb, name, sets ? "a field of solver or net is given as --set=" : "",
                   sets ? name : "", sets ? "=VALUE; " : "", verb);
}

static bool is_bool(const char *text, bool *value_p)
{
    static const char *const yes[] = { "true", "yes", "on", "1" };
    static const char *const no[] = { "false", "no", "off", "0" };

    for (int i = 0; i < 4; i++) {
        if (strcmp(text, yes[i]) == 0) return *value_p = true, true;
        if (strcmp(text, no[i]) == 0) return *value_p = false, true;
    }
    return false;
}

static bool is_choice(const char *words, const char *text)
{
    size_t n = strlen(text);

    if ((n == 0) || (strchr(text, '|') != NULL)) return false;
    for (const char *at = words; at != NULL;) {
        const char *end = strchr(at, '|');
        size_t size = (end != NULL) ? (size_t)(end - at) : strlen(at);

        if ((size == n) && (strncmp(at, text, n) == 0)) return true;
        at = (end != NULL) ? end + 1 : NULL;
    }
    return false;
}

static ct_status check_count(const char *text, long long least, long long most, const char *who)
{
    int64_t v;
    char *end;

    if ((text[0] != '-') && ct_number_integer(text, &end, &v) && (*end == '\0') && (v >= least) &&
        (v <= most))
        return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s=%s: expected a whole number, %lld to %lld", who, text, least,
                   most);
}

static ct_status check(const ct_option *op, const char *text, const char *who)
{
    bool flag;

    switch (op->kind) {
    case CT_OPTION_FLAG:
        if (is_bool(text, &flag)) return CT_OK;
        return CT_FAIL(CT_ERR_CONFIG, "%s=%s: expected true or false", who, text);
    case CT_OPTION_COUNT:
        return check_count(text, 0, INT32_MAX, who);
    case CT_OPTION_SOME:
        return check_count(text, 1, INT32_MAX, who);
    case CT_OPTION_SEED:
        return check_count(text, 0, INT64_MAX, who);
    case CT_OPTION_CHOICE:
        if (is_choice(op->value, text)) return CT_OK;
        return CT_FAIL(CT_ERR_CONFIG, "%s=%s: expected one of %s", who, text, op->value);
    case CT_OPTION_TEXT:
    case CT_OPTION_OUT:
    case CT_OPTION_LIST:
    case CT_OPTION_MAYBE:
    case CT_OPTION_REST:
        if (text[0] != '\0') return CT_OK;
        return CT_FAIL(CT_ERR_CONFIG, "%s: empty value; expected %s", who, op->value);
    }
    return CT_OK;
}

static ct_status add(ct_options *o, int option, const char *text, size_t size, ct_origin origin,
                     const char *who)
{
    entry *list = realloc(o->list, (size_t)(o->n + 1) * sizeof(*list));

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for options");
    o->list = list;
    list[o->n] = (entry){ .text = strndup(text, size), .origin = origin, .option = option };
    if (origin == CT_ORIGIN_FILE) list[o->n].place = strdup(who);
    if ((list[o->n].text == NULL) || ((origin == CT_ORIGIN_FILE) && (list[o->n].place == NULL))) {
        free(list[o->n].text);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for options");
    }
    return check(&o->table[option], list[o->n++].text, who);
}

void ct_option_twin(const char *name, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "CORTADO_%s", name);

    for (size_t i = 0; (i < n) && (i < size - 1); i++)
        out[i] = (char)toupper((unsigned char)out[i]);
}

static ct_status read_environment(ct_options *o, const char *verb)
{
    char name[80];

    for (int i = 0; i < o->n_option; i++) {
        const char *text;

        ct_option_twin(o->table[i].name, name, sizeof(name));
        text = getenv(name);
        if ((text == NULL) || !ct_option_serves(&o->table[i], verb)) continue;
        if ((o->table[i].kind != CT_OPTION_LIST) && (o->table[i].kind != CT_OPTION_REST)) {
            CT_TRY(add(o, i, text, strlen(text), CT_ORIGIN_ENV, name));
            continue;
        }
        while (*text != '\0') {
            size_t size = strcspn(text, ";");

            if (size > 0) CT_TRY(add(o, i, text, size, CT_ORIGIN_ENV, name));
            text += size + (text[size] == ';');
        }
    }
    return CT_OK;
}

static void warn_near_twin(const char *name, const char *const *known, int n)
{
    const char *near = ct_text_nearest(name, known, n);

    if ((near != NULL) && (strcmp(near, name) != 0) && ct_log_on(CT_LOG_INFO))
        CT_WARN("environment: CORTADO_%s is no option; did you mean CORTADO_%s?", name, near);
}

/* A misspelt twin would be silently without effect. */
static ct_status warn_near_twins(const ct_options *o)
{
    char(*twin)[80] = calloc((size_t)o->n_option + 1, sizeof(*twin));
    const char **known = calloc((size_t)o->n_option + 1, sizeof(*known));
    ct_status status = CT_OK;

    for (int i = 0; (twin != NULL) && (known != NULL) && (i < o->n_option); i++) {
        ct_option_twin(o->table[i].name, twin[i], sizeof(twin[i]));
        known[i] = twin[i] + strlen("CORTADO_");
    }
    if ((twin == NULL) || (known == NULL)) status = CT_FAIL(CT_ERR_NOMEM, "no memory for options");
    for (char *const *e = environ; (status == CT_OK) && (*e != NULL); e++) {
        char name[80];

        if (strncmp(*e, "CORTADO_", 8) != 0) continue;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e + 8, "="), *e + 8);
        warn_near_twin(name, known, o->n_option);
    }
    free(twin);
    free(known);
    return status;
}

/* An argument that is no option. */
static ct_status take_rest(ct_options *o, const char *verb, const char *text)
{
    for (int i = 0; i < o->n_option; i++) {
        const ct_option *op = &o->table[i];

        if ((op->kind == CT_OPTION_REST) && ct_option_serves(op, verb) && (text[0] != '-'))
            return add(o, i, text, strlen(text), CT_ORIGIN_COMMAND, op->name);
    }
    return CT_FAIL(CT_ERR_CONFIG,
                   "cortado %s: \"%s\" is no option; they begin with --, see cortado %s --help",
                   verb, text, verb);
}

static ct_status read_command(ct_options *o, int argc, char *const *argv)
{
    for (int a = 1; a < argc; a++) {
        char name[64], who[80];
        const char *value;
        size_t size;
        int i;

        if ((strncmp(argv[a], "--", 2) != 0) || (argv[a][2] == '\0')) {
            CT_TRY(take_rest(o, argv[0], argv[a]));
            continue;
        }
        size = strcspn(argv[a] + 2, "=");
        snprintf(name, sizeof(name), "%.*s", (int)size, argv[a] + 2);
        for (char *c = name; *c != '\0'; c++) *c = (*c == '-') ? '_' : *c;
        i = find(o->table, o->n_option, argv[0], name);
        if (i < 0) return fail_unknown(o->table, o->n_option, argv[0], name);
        value = (argv[a][2 + size] == '=') ? argv[a] + 3 + size : NULL;
        if ((value == NULL) && (o->table[i].kind == CT_OPTION_FLAG)) value = "true";
        if ((value == NULL) && (o->table[i].kind == CT_OPTION_MAYBE)) value = "-";
        if (value == NULL) {
            if (a + 1 >= argc) {
                return CT_FAIL(CT_ERR_CONFIG, "cortado %s: --%s needs a value: --%s=%s", argv[0],
                               name, name, o->table[i].value);
            }
            value = argv[++a];
        }
        snprintf(who, sizeof(who), "--%s", name);
        CT_TRY(add(o, i, value, strlen(value), CT_ORIGIN_COMMAND, who));
    }
    return CT_OK;
}

/* ---- what is written takes no other's place */

static bool is_written(const ct_options *o, const entry *e)
{
    ct_option_kind kind = o->table[e->option].kind;

    return (kind == CT_OPTION_OUT) || (kind == CT_OPTION_MAYBE);
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;

    return (stat(a, &of_a) == 0) && S_ISREG(of_a.st_mode) && (stat(b, &of_b) == 0) &&
           (of_a.st_dev == of_b.st_dev) && (of_a.st_ino == of_b.st_ino);
}

/* An entry may have several files, with commas between. */
static bool has_file(const entry *e, const char *file)
{
    char *words = strdup(e->text), *rest = NULL;
    bool has = is_same_file(e->text, file);

    for (char *w = (words != NULL) ? strtok_r(words, ",", &rest) : NULL; (w != NULL) && !has;
         w = strtok_r(NULL, ",", &rest))
        has = is_same_file(w, file);
    free(words);
    return has;
}

static bool would_replace(const ct_options *o, const entry *out, const entry *e)
{
    ct_option_kind kind = o->table[e->option].kind;

    if ((e->option == out->option) || (strcmp(out->text, "-") == 0)) return false;
    if (is_written(o, e) && (strcmp(e->text, out->text) == 0)) return true;
    return ((kind == CT_OPTION_TEXT) || (kind == CT_OPTION_REST) || is_written(o, e)) &&
           has_file(e, out->text);
}

static ct_status check_written(const ct_options *o)
{
    for (int i = 0; i < o->n; i++)
        for (int k = 0; is_written(o, &o->list[i]) && (k < o->n); k++)
            if (would_replace(o, &o->list[i], &o->list[k]))
                return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: the file of --%s; expected another one",
                               o->table[o->list[i].option].name, o->list[i].text,
                               o->table[o->list[k].option].name);
    return CT_OK;
}

ct_status ct_options_parse(const ct_option *table, int n, int argc, char *const *argv,
                           ct_options **options_p)
{
    ct_options *o = calloc(1, sizeof(*o));
    ct_status status;

    if (o == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for options");
    o->table = table;
    o->n_option = n;
    CT_TRY_GOTO(status, err_destroy, warn_near_twins(o));
    CT_TRY_GOTO(status, err_destroy, read_environment(o, argv[0]));
    CT_TRY_GOTO(status, err_destroy, read_command(o, argc, argv));
    CT_TRY_GOTO(status, err_destroy, check_written(o));
    *options_p = o;
    return CT_OK;

err_destroy:
    ct_options_destroy(o);
    return status;
}

void ct_options_destroy(ct_options *o)
{
    if (o == NULL) return;
    for (int i = 0; i < o->n; i++) {
        free(o->list[i].text);
        free(o->list[i].place);
    }
    free(o->list);
    free(o);
}

ct_status ct_options_take(ct_options *o, const char *verb, const char *name, const char *text,
                          const char *place)
{
    int k = find(o->table, o->n_option, verb, name);

    if (ct_options_origin(o, name) != CT_ORIGIN_DEFAULT) return CT_OK;
    return add(o, k, text, strlen(text), CT_ORIGIN_FILE, place);
}

/* The i-th entry of that name, or the last for i < 0. */
static const entry *at(const ct_options *o, const char *name, int i)
{
    const entry *found = NULL;

    for (int k = 0; (o != NULL) && (k < o->n); k++) {
        if (strcmp(o->table[o->list[k].option].name, name) != 0) continue;
        found = &o->list[k];
        if (i-- == 0) return found;
    }
    return (i < 0) ? found : NULL;
}

const char *ct_options_text(const ct_options *o, const char *name)
{
    const entry *e = at(o, name, -1);

    return (e != NULL) ? e->text : NULL;
}

bool ct_options_flag(const ct_options *o, const char *name)
{
    const entry *e = at(o, name, -1);
    bool value = false;

    if (e != NULL) is_bool(e->text, &value);
    return value;
}

int64_t ct_options_count(const ct_options *o, const char *name, int64_t otherwise)
{
    const entry *e = at(o, name, -1);

    return (e != NULL) ? strtoll(e->text, NULL, 10) : otherwise;
}

int ct_options_n(const ct_options *o, const char *name)
{
    int n = 0;

    for (int k = 0; (o != NULL) && (k < o->n); k++)
        n += (strcmp(o->table[o->list[k].option].name, name) == 0);
    return n;
}

const char *ct_options_entry(const ct_options *o, const char *name, int i, ct_origin *origin_p)
{
    const entry *e = (i >= 0) ? at(o, name, i) : NULL;

    if ((e == NULL) || (i >= ct_options_n(o, name))) return NULL;
    if (origin_p != NULL) *origin_p = e->origin;
    return e->text;
}

ct_origin ct_options_origin(const ct_options *o, const char *name)
{
    const entry *e = at(o, name, -1);

    return (e != NULL) ? e->origin : CT_ORIGIN_DEFAULT;
}

ct_option_place ct_options_place(const ct_options *o, const char *name)
{
    const entry *e = at(o, name, -1);
    ct_option_place p;

    if ((e != NULL) && (e->place != NULL))
        snprintf(p.text, sizeof(p.text), "%s", e->place);
    else
        snprintf(p.text, sizeof(p.text), "--%s", name);
    return p;
}

const char *ct_origin_str(ct_origin origin)
{
    static const char *const name[] = { "default", "file", "environment", "command line" };

    return name[origin];
}

void ct_options_help(const ct_option *table, int n, const char *verb, FILE *to)
{
    char name[80];

    for (int i = 0; i < n; i++) {
        const ct_option *op = &table[i];

        if (!ct_option_serves(op, verb)) continue;
        ct_option_twin(op->name, name, sizeof(name));
        if (op->kind == CT_OPTION_MAYBE)
            fprintf(to, "  --%s[=%s]\n        %s [%s]\n", op->name, op->value, op->help, name);
        else
            fprintf(to, "  --%s%s%s\n        %s [%s]\n", op->name, (op->value != NULL) ? "=" : "",
                    (op->value != NULL) ? op->value : "", op->help, name);
    }
}
