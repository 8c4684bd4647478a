/* libFuzzer's way into the prototxt reader: any bytes are taken for a net, and for a solver, as
 * text and as a file beside other files that it may name. Run by `make fuzz`. */
#include "tests/fuzz/folder.h"
#include "tests/fuzz/prototxt_once.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

/* One that can be read has what stands for its nets and its snapshots; one that cannot says why,
 * once. hints: whether those of forks are refused. */
static void read_file(const char *path, bool is_solver, bool hints)
{
    Ct__SolverParameter *solver = NULL;
    Ct__NetParameter *net = NULL;
    ct_source_map *map = NULL;
    long n_error = ct_log_n_error();
    ct_status status;

    if (ct_source_map_create(&map) != CT_OK) abort();
    if (hints) ct_source_map_refuse_hints(map);
    status = is_solver ? ct_solver_read(path, map, &solver) : ct_net_read(path, map, &net);
    if ((status == CT_OK) != ((solver != NULL) || (net != NULL))) abort();
    if (ct_log_n_error() - n_error != (status != CT_OK)) abort();
    if (solver != NULL) {
        if ((solver->snapshot_prefix == NULL) || (solver->snapshot_prefix[0] == '\0')) abort();
        ct__solver_parameter__free_unpacked(solver, NULL);
    }
    if (net != NULL) ct__net_parameter__free_unpacked(net, NULL);
    ct_source_map_destroy(map);
}

FUZZ_TOKENS(0, &ct__solver_parameter__descriptor);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[128];

    ct_log_set_sink(fuzz_drop, NULL);
    snprintf(path, sizeof(path), "%s/beside", fuzz_folder_path());
    fuzz_write(path, "", 0);
    snprintf(path, sizeof(path), "%s/text.prototxt", fuzz_folder_path());
    fuzz_write(path, data, size);
    for (int is_solver = 0; is_solver < 2; is_solver++) {
        bool is_good;
        const char *wrong = prototxt_once((const char *)data, size, is_solver != 0, &is_good);

        if (wrong != NULL) {
            fprintf(stderr, "%s\n", wrong);
            abort();
        }
        read_file(path, is_solver != 0, size % 4 == 0);
    }
    return 0;
}
