// SPDX-License-Identifier: Apache-2.0
// The command line: one file a command, no logic of its own.
#ifndef HN_CLI_H
#define HN_CLI_H
#include <jansson.h>
#include "base/base.h"
#include "config/config.h"

// A command parses its options, calls the library, prints results on stdout. On failure it returns
// the status with the record filled; main prints it and chooses the exit status. A command that
// needs an exit status of its own (a child's, say) stores it in *out_exit.
typedef hone_status (*hn_command_fn)(hone_error *err, int argc, char **argv, int *out_exit);

typedef struct hn_command {
    const char *name, *usage, *summary;
    hn_command_fn run;
} hn_command;

#define HN_COMMAND(name, usage, summary)                                                           \
    hone_status hn_cmd_##name(hone_error *err, int argc, char **argv, int *out_exit);
#include "cli/commands.def"
#undef HN_COMMAND

// Parses a command's options. Under `hone help COMMAND` or --help it prints them instead and returns
// HONE_ERR_USAGE, which main then turns into exit status 0: the command just passes it on.
hn_status hn_cli_parse(hone_error *err, int argc, char **argv, const hn_option *options,
                       size_t option_count, const char **positional, int max_positional,
                       int *out_positional_count);

const char *hn_cli_version(void);
// The only ways to standard output (print.c): text from outside is cleaned. printf ends lines where the
// format does, put where the text does.
void hn_cli_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void hn_cli_put(const char *text);
// A JSON document, given up here; a NULL root is an error.
hn_status hn_cli_json(hone_error *err, json_t *root);
hn_status hn_cli_json_line(hone_error *err, json_t *root); // on one line, and sent at once
json_t *hn_cli_json_text(const char *text); // bytes that are not UTF-8 are written out

// A progress bar on stderr, drawn only when stderr is a terminal. total <= 0: a counter.
void hn_cli_progress(const char *what, double done, double total);
void hn_cli_progress_end(void);
#endif
