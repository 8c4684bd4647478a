/* Every file of tests/golden/broken, and of broken_solver, whose values make no sense, gives
 * exactly the message that expected.txt says. */
#include "tests/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/proto/upgrade.h"
#include "framework/solver/solver.h"
#include "tests/log_capture.h"

#define FOLDER  "tests/golden/broken/"
#define SOLVERS "tests/golden/broken_solver/"

static ct_status read_any(const char *path, bool is_solver, ct_source_map *map)
{
    Ct__SolverParameter *solver;
    Ct__NetParameter *net;
    ct_status status =
        is_solver ? ct_solver_read(path, map, &solver) : ct_net_read(path, map, &net);

    if ((status == CT_OK) && is_solver) {
        status = ct_solver_check(solver, map);
        ct__solver_parameter__free_unpacked(solver, NULL);
    }
    if ((status == CT_OK) && !is_solver) ct__net_parameter__free_unpacked(net, NULL);
    return status;
}

/* One line of the table: "NAME.prototxt:LINE:COLUMN: message". A message that ends with "*" may go
 * on: lists of what is known grow. */
static void check_line(const char *folder, const char *line)
{
    size_t length = strcspn(line, ":");
    char path[256], expected[4096];
    log_capture c;
    ct_source_map *map;
    ct_status status;

    snprintf(path, sizeof(path), "%s%.*s", folder, (int)length, line);
    snprintf(expected, sizeof(expected), "%s%s", folder, line);
    assert_int_equal(ct_source_map_create(&map), CT_OK);
    log_capture_start(&c);
    status =
        read_any(path, (strncmp(line, "solver_", 7) == 0) || (strcmp(folder, SOLVERS) == 0), map);
    log_capture_stop();
    ct_source_map_destroy(map);
    length = strlen(expected);
    if (expected[length - 1] == '*') {
        expected[length - 1] = 0;
        assert_true(strlen(c.error) >= length - 1);
        c.error[length - 1] = 0;
    }
    assert_string_equal(c.error, expected);
    assert_int_equal(c.n_error, 1);
    assert_int_equal(status, CT_ERR_CONFIG);
    assert_int_equal(ct_status_exit_code(status), 2);
}

static int count_files(const char *name)
{
    DIR *folder = opendir(name);
    int n = 0;

    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder)) != NULL;)
        n += (strstr(e->d_name, ".prototxt") != NULL) && (strcmp(e->d_name, "net.prototxt") != 0);
    closedir(folder);
    return n;
}

static void check_folder(const char *folder, int least)
{
    char *table, *line, *rest, path[256];
    size_t size;
    int n = 0;

    snprintf(path, sizeof(path), "%sexpected.txt", folder);
    assert_int_equal(ct_file_read(path, &table, &size), CT_OK);
    for (rest = table; (line = strsep(&rest, "\n")) != NULL;) {
        if (*line == '\0') continue;
        check_line(folder, line);
        n++;
    }
    free(table);
    assert_int_equal(n, count_files(folder));
    assert_true(n >= least);
}

static void broken_files(void **state)
{
    (void)state;
    check_folder(FOLDER, 30);
}

static void broken_solvers(void **state)
{
    (void)state;
    check_folder(SOLVERS, 20);
}

int main(void)
{
    const struct CMUnitTest test[] = { cmocka_unit_test(broken_files),
                                       cmocka_unit_test(broken_solvers) };

    return cmocka_run_group_tests(test, NULL, NULL);
}
