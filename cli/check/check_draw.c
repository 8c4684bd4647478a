/* The graph as Graphviz's text: a box a layer, an arrow a blob with its shape. Layers in place
 * stand in the chain that they work on. */
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "cli/check/check.h"

extern char **environ;

/* The layer that wrote blob b last before layer i, through Reorders; -1: none. */
static int writer(const ct_net *net, int i, const ct_blob *b)
{
    for (int k = i - 1; k >= 0; k--) {
        for (int t = 0; t < net->layer[k]->n_top; t++) {
            if (net->instance[k]->top[t] != b) continue;
            if (!net->layer[k]->ops->by_net) return k;
            b = net->instance[k]->bottom[0];
        }
    }
    return -1;
}

static void add_escaped(const char *s, ct_text *out)
{
    for (; *s != '\0'; s++) {
        if ((*s == '"') || (*s == '\\')) ct_text_add(out, "\\");
        ct_text_add(out, "%c", *s);
    }
}

static void add_node(const ct_net *net, int i, ct_text *out)
{
    const ct_layer *l = net->layer[i];
    const char *colour = (l->n_weight > 0) ? "#cfe2f3" : "#f3f3f3";
    int64_t n = 0;

    if (l->n_bottom == 0) colour = "#d9ead3";
    if (l->ops->is_loss) colour = "#f4cccc";
    for (int w = 0; w < l->n_weight; w++) n += ct_shape_count(&l->weight[w].shape, 0, -1);
    ct_text_add(out, "  n%d [fillcolor=\"%s\" label=\"", i, colour);
    add_escaped(l->name, out);
    ct_text_add(out, "\\n%s", l->ops->type);
    if (n > 0) ct_text_add(out, "\\n%lld weights", (long long)n);
    ct_text_add(out, "\"];\n");
}

static void add_arrow(const ct_blob *b, int from, int to, bool to_end, ct_text *out)
{
    const ct_shape *s = &b->data.shape;

    ct_text_add(out, "  n%d -> %s%d [label=\"", from, to_end ? "end" : "n", to);
    add_escaped(b->name, out);
    ct_text_add(out, "\\n%s", b->varies ? "&le; " : "");
    for (int k = 0; k < s->ndim; k++)
        ct_text_add(out, "%s%lld", (k > 0) ? " x " : "", (long long)s->dim[k]);
    ct_text_add(out, "\"];\n");
}

static void add_graph(const ct_net *net, ct_text *out)
{
    ct_text_add(out, "digraph \"");
    add_escaped(net->name, out);
    ct_text_add(out,
                "\" {\n  rankdir=TB;\n  node [shape=box style=filled fontname=\"Helvetica\"];\n"
                "  edge [fontname=\"Helvetica\" fontsize=10];\n");
    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];

        if (l->ops->by_net) continue;
        add_node(net, i, out);
        for (int b = 0; b < l->n_bottom; b++) {
            const ct_blob *bottom = net->instance[i]->bottom[b];
            int from = writer(net, i, bottom);

            if (from >= 0) add_arrow(bottom, from, i, false, out);
        }
    }
    for (int k = 0; k < net->n_output; k++) {
        const ct_output *o = &net->output[k];
        int from = net->layer[o->layer]->ops->by_net
                       ? writer(net, o->layer, net->instance[o->layer]->bottom[0])
                       : o->layer;

        ct_text_add(out, "  end%d [shape=point];\n", k);
        if (from >= 0) add_arrow(net->blob[o->blob], from, k, true, out);
    }
    ct_text_add(out, "}\n");
}

/* dot -Tkind -o file source */
static ct_status run_dot(const char *kind, const char *file, const char *source)
{
    char name[] = "dot", format[16], output[] = "-o";
    char *to = strdup(file), *from = strdup(source);
    char *argv[] = { name, format, output, to, from, NULL };
    int state = 0, error = ENOMEM;
    ct_status status = CT_OK;
    pid_t pid;

    snprintf(format, sizeof(format), "-T%s", kind);
    if ((to != NULL) && (from != NULL)) error = posix_spawnp(&pid, name, NULL, NULL, argv, environ);
    if (error == ENOENT) {
        status = CT_FAIL(CT_ERR_CONFIG,
                         "--dot=%s needs Graphviz's program \"dot\", which is not installed; "
                         "--dot=FILE.dot writes what it reads",
                         file);
    } else if (error != 0) {
        status = CT_FAIL(CT_ERR_IO, "dot cannot be started: %s", strerror(error));
    } else {
        while ((waitpid(pid, &state, 0) < 0) && (errno == EINTR)) continue;
        if (!WIFEXITED(state) || (WEXITSTATUS(state) != 0))
            status = CT_FAIL(CT_ERR_IO, "dot could not write %s (exit code %d)", file,
                             WIFEXITED(state) ? WEXITSTATUS(state) : -1);
    }
    free(to);
    free(from);
    return status;
}

static ct_status draw_picture(const char *file, const char *kind, const ct_text *graph)
{
    ct_text source = { 0 };
    ct_status status;

    CT_TRY(ct_file_check_writable(file));
    ct_text_add(&source, "%s.%d.dot", file, (int)getpid());
    if (source.failed) {
        ct_text_destroy(&source);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    }
    status = ct_file_write(source.text, graph->text, graph->length);
    if (status == CT_OK) {
        status = run_dot(kind, file, source.text);
        unlink(source.text);
    }
    ct_text_destroy(&source);
    return status;
}

ct_status ct_check_draw(const ct_net *net, const char *file)
{
    static const char *const picture[] = { "svg", "png", "pdf" };
    const char *ending = strrchr(file, '.'), *kind = NULL;
    ct_text graph = { 0 };
    ct_status status;

    for (size_t i = 0; (ending != NULL) && (i < sizeof(picture) / sizeof(picture[0])); i++) {
        if (strcmp(ending + 1, picture[i]) == 0) kind = picture[i];
    }
    add_graph(net, &graph);
    if (graph.failed) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a graph");
    } else if (kind != NULL) {
        status = draw_picture(file, kind, &graph);
    } else {
        status = ct_file_write(file, graph.text, graph.length);
    }
    ct_text_destroy(&graph);
    return status;
}
