/* What a `topology:` text says. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/discover.h"

static ct_status copy(const char *topology, const char *from, size_t n, char *to, size_t size)
{
    if (n >= size)
        return CT_FAIL(CT_ERR_CONFIG, "topology \"%.40s…\": longer than %zu characters", topology,
                       size - 1);
    memcpy(to, from, n);
    to[n] = '\0';
    return CT_OK;
}

/* "MACHINE,RANKS_PER_NODE,PLACEMENT" */
static ct_status parse_place(const char *topology, const char *rest, ct_topo_text *t)
{
    const char *last = strrchr(rest, ','), *first = last;
    long n = 0;
    char *end = NULL;

    while ((first != NULL) && (first > rest) && (*--first != ',')) continue;
    if ((last == NULL) || (first == rest) || (*first != ','))
        return CT_FAIL(CT_ERR_CONFIG,
                       "topology \"%s\": expected place:MACHINE,RANKS_PER_NODE,PLACEMENT",
                       topology);
    n = isdigit((unsigned char)first[1]) ? strtol(first + 1, &end, 10) : 0;
    if ((n < 1) || (n > 1 << 20) || (end != last))
        return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": \"%.*s\" ranks per node", topology,
                       (int)(last - first - 1), first + 1);
    t->ranks_per_node = (int)n;
    CT_TRY(ct_topo_check_placement(last + 1));
    CT_TRY(copy(topology, rest, (size_t)(first - rest), t->machine, sizeof(t->machine)));
    return copy(topology, last + 1, strlen(last + 1), t->spec, sizeof(t->spec));
}

static const char *behind(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);

    return (strncmp(text, prefix, n) == 0) ? text + n : NULL;
}

/* A spec starts with a number, but so may the name of a file. */
static bool is_spec(const char *text)
{
    if (behind(text, "map:") != NULL) return true;
    return isdigit((unsigned char)text[0]) &&
           ((strchr(text, '@') != NULL) || !ct_machine_is_path(text));
}

/* "WORD" or "WORD@MACHINE"; false where the text is neither. */
static bool is_word(const char *topology, const char *word)
{
    const char *rest = behind(topology, word);

    return (rest != NULL) && ((*rest == '\0') || (*rest == '@'));
}

static ct_status parse_spec(const char *topology, ct_topo_text *t)
{
    const char *at = strchr(topology, '@');
    size_t n = (at != NULL) ? (size_t)(at - topology) : strlen(topology);

    while ((at != NULL) && (n > 0) && (topology[n - 1] == ' ')) n -= 1;
    CT_TRY(copy(topology, topology, n, t->spec, sizeof(t->spec)));
    if (at == NULL) return CT_OK;
    do {
        at += 1;
    } while (*at == ' ');
    if ((*at == '\0') || (behind(t->spec, "map:") != NULL))
        return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": expected SPEC@MACHINE, such as 2x4@%s",
                       topology, ct_ready_machine_table[0].name);
    return copy(topology, at, strlen(at), t->machine, sizeof(t->machine));
}

ct_status ct_topo_text_parse(const char *topology, ct_topo_text *text_p)
{
    const char *conf = behind(topology, "slurm:"), *place = behind(topology, "place:");
    ct_topo_text t = { .kind = CT_TOPO_FILE };

    if (topology[0] == '\0') return CT_FAIL(CT_ERR_CONFIG, "topology \"\": expected \"auto\"");
    if (is_word(topology, "auto") || is_word(topology, "slurm")) {
        t.kind = (topology[0] == 'a') ? CT_TOPO_AUTO : CT_TOPO_SLURM;
        t.needs_names = (t.kind == CT_TOPO_SLURM);
        CT_TRY(parse_spec(topology, &t));
    } else if (conf != NULL) {
        t.kind = CT_TOPO_CONF;
        t.needs_names = true;
        CT_TRY(copy(topology, conf, strlen(conf), t.machine, sizeof(t.machine)));
        if (conf[0] == '\0')
            return CT_FAIL(CT_ERR_CONFIG, "topology \"slurm:\": expected slurm:FILE");
    } else if (place != NULL) {
        t.kind = CT_TOPO_PLACE;
        CT_TRY(parse_place(topology, place, &t));
    } else if (is_spec(topology)) {
        t.kind = CT_TOPO_SPEC;
        CT_TRY(parse_spec(topology, &t));
    } else {
        CT_TRY(copy(topology, topology, strlen(topology), t.machine, sizeof(t.machine)));
    }
    *text_p = t;
    return CT_OK;
}

const char *ct_topo_text_file(const ct_topo_text *text)
{
    if (text->machine[0] == '\0') return NULL;
    if (text->kind == CT_TOPO_CONF) return text->machine;
    return ct_machine_is_path(text->machine) ? text->machine : NULL;
}

ct_status ct_topo_text_machine(const ct_topo_text *text, const char *file, size_t size,
                               ct_machine **machine_p)
{
    const char *name = text->machine;

    *machine_p = NULL;
    if (name[0] == '\0') return CT_OK;
    if (text->kind == CT_TOPO_CONF) return ct_slurm_parse_conf(name, file, size, machine_p);
    if (file != NULL) return ct_machine_parse(name, file, size, machine_p);
    file = ct_machine_ready(name);
    if (file == NULL) return ct_machine_fail_unknown(name);
    return ct_machine_parse(name, file, strlen(file), machine_p);
}
