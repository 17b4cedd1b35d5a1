// SPDX-License-Identifier: Apache-2.0
// Status codes and the error record of the public API.
//
// Every call that can fail returns hone_status; details are written to a caller-owned hone_error
// (which may be NULL). Codes are grouped by the largest thing that is damaged, so that a caller
// (a server, say) knows what to drop: the request, the model, the device, or the process.
#ifndef HONE_STATUS_H
#define HONE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HONE_WARN_UNUSED __attribute__((warn_unused_result))
#define HONE_API         __attribute__((visibility("default")))
#else
#define HONE_WARN_UNUSED
#define HONE_API
#endif

typedef enum hone_status_e {
    HONE_OK = 0,
    // The request is at fault; model and device are fine.
    HONE_ERR_USAGE = 1,     // an argument or option is wrong
    HONE_ERR_CHECK = 2,     // the work was done and the answer is no
    HONE_ERR_INPUT = 3,     // a named file is missing, or a tensor does not fit the model
    HONE_ERR_TIMEOUT = 4,   // a deadline passed; what was found so far is valid
    // The model or another input file is at fault.
    HONE_ERR_FORMAT = 10,   // a file is broken, truncated or hostile
    HONE_ERR_LIMIT = 11,    // a file asks for more than the configured limits
    // Not possible here; another device or build may do it.
    HONE_ERR_UNSUPPORTED = 20,
    // The device is at fault.
    HONE_ERR_DEVICE = 30,      // a device call failed; the device is still usable
    HONE_ERR_DEVICE_LOST = 31, // a sticky fault; every later call on the device fails
    // The process or system is at fault.
    HONE_ERR_IO = 40,       // open, read, write, rename failed
    HONE_ERR_NOMEM = 41,    // out of memory
    HONE_ERR_INTERNAL = 50, // a bug of ours, reported instead of aborting
} hone_status;

#define HONE_ERROR_TEXT_BYTES 512
#define HONE_ERROR_FRAMES     8
#define HONE_ERROR_FRAME_BYTES 128

// The record of the first error of a call. Filled without allocation. Zero-initialise it once;
// the next failing call overwrites it.
typedef struct hone_error {
    hone_status status;
    int vendor_code;        // the foreign library's own code, 0 if none
    const char *file;       // where it was decided (static storage)
    int line;
    char text[HONE_ERROR_TEXT_BYTES]; // one sentence without a final newline
    int frame_count;                  // context, innermost first: "importing node 'x'"
    char frames[HONE_ERROR_FRAMES][HONE_ERROR_FRAME_BYTES];
} hone_error;

// Short stable name of a status ("format", "unsupported", ...).
HONE_API const char *hone_status_name(hone_status status);

// Exit status of the command line for a status: 0 done, 1 the answer is no, 2 bad usage,
// 3 bad input file, 4 unsupported here, 5 device or system failure.
HONE_API int hone_status_exit_code(hone_status status);

// Writes "text (outer frame: inner frame)" into buf, always terminated. Returns buf.
HONE_API const char *hone_error_format(const hone_error *error, char *buf, unsigned long size);

#ifdef __cplusplus
}
#endif
#endif
