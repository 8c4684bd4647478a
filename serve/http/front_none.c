/* In the place of front.c where libmicrohttpd was not there when the program was built. */
#include "serve/http/front.h"

ct_status ct_front_start(ct_api *api, const ct_front_options *options, ct_front **f_p)
{
    (void)api;
    (void)options;
    (void)f_p;
    return CT_FAIL(CT_ERR_CONFIG,
                   "this program was built without libmicrohttpd, which a server needs: install "
                   "libmicrohttpd-dev (libmicrohttpd-devel) and build it again");
}

const char *ct_front_address(const ct_front *f)
{
    (void)f;
    return "";
}

bool ct_front_is_private(const ct_front *f)
{
    (void)f;
    return true;
}

bool ct_front_drain(ct_front *f, double limit_s)
{
    (void)f;
    (void)limit_s;
    return true;
}

void ct_front_stop(ct_front *f)
{
    (void)f;
}
