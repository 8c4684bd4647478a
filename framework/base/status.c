#include "framework/base/status.h"

const char *ct_status_str(ct_status status)
{
    switch (status) {
    case CT_OK:
        return "ok";
    case CT_INPROGRESS:
        return "in progress";
    case CT_UNSUPPORTED:
        return "unsupported";
    case CT_STOPPED:
        return "stopped early with a snapshot";
    case CT_ERR_ARG:
        return "broken contract";
    case CT_ERR_CONFIG:
        return "wrong configuration";
    case CT_ERR_SHAPE:
        return "shapes do not fit";
    case CT_ERR_NOMEM:
        return "no memory";
    case CT_ERR_IO:
        return "input or output failed";
    case CT_ERR_DATA:
        return "bad data";
    case CT_ERR_COMM:
        return "communication failed";
    case CT_ERR_DEVICE:
        return "device failed";
    case CT_ERR_LAUNCH:
        return "launch mismatch";
    case CT_ERR_DIVERGED:
        return "the numbers diverged";
    case CT_ERR_WATCHDOG:
        return "no progress";
    }
    return "unknown status";
}

int ct_status_exit_code(ct_status status)
{
    switch (status) {
    case CT_OK:
        return 0;
    case CT_ERR_CONFIG:
    case CT_ERR_SHAPE:
        return 2;
    case CT_ERR_IO:
    case CT_ERR_DATA:
        return 3;
    case CT_ERR_LAUNCH:
        return 4;
    case CT_ERR_DIVERGED:
        return 5;
    case CT_ERR_WATCHDOG:
        return 6;
    case CT_STOPPED:
        return 75;
    default:
        return 1;
    }
}
