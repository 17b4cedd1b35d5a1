// SPDX-License-Identifier: Apache-2.0
// Entry point of `hone`: finds the command's row, prints errors, maps statuses to exit codes.
#include "cli/cli.h"
#include "store/keeper.h"
#include "probe/cpu.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static const hn_command k_commands[] = {
#define HN_COMMAND(name, usage, summary) {#name, usage, summary, hn_cmd_##name},
#include "cli/commands.def"
#undef HN_COMMAND
};

static const hn_command *g_help_for; // set while `hone help COMMAND` runs
static bool g_help_shown;

static void log_to_stderr(void *user, hn_log_level level, const char *text) {
    (void)user;
    static const char *const k_names[] = {"error", "warning", "info", "debug"};
    fprintf(stderr, "hone: %s: %s\n", k_names[level], text);
}

static const hn_command *find_command(const char *name) {
    for (size_t i = 0; i < HN_COUNT_OF(k_commands); i++)
        if (strcmp(k_commands[i].name, name) == 0) return &k_commands[i];
    return NULL;
}

static void print_usage(FILE *to) {
    char line[HN_LANG_BYTES];
    fprintf(to, "%s\n\n", hn_lang_text(HN_SAY("usage: hone COMMAND [options]"), line));
    for (size_t i = 0; i < HN_COUNT_OF(k_commands); i++)
        fprintf(to, "  %-10s %s\n", k_commands[i].name, hn_lang_text(k_commands[i].summary, line));
    hn_str text = {0};
    hn_config_help(&text);
    const char *more = HN_SAY("hone help COMMAND shows a command's options. Settings of every command:");
    fprintf(to, "\n%s\n%s", hn_lang_text(more, line), hn_str_get(&text));
    hn_str_free(&text);
}

hn_status hn_cli_parse(hone_error *err, int argc, char **argv, const hn_option *options,
                       size_t option_count, const char **positional, int max_positional,
                       int *out_positional_count) {
    if (g_help_for) {
        hn_str text = {0};
        hn_options_help(&text, options, option_count);
        hn_cli_put(hn_str_get(&text));
        hn_str_free(&text);
        g_help_shown = true;
        return HONE_ERR_USAGE;
    }
    hone_status status = hn_options_parse(err, argc, argv, options, option_count, positional,
                                          max_positional, out_positional_count);
    if (status == HONE_OK) status = hn_cpu_isa_check(err);
    if (status == HONE_OK && !hn_parallel_choose(hn_config_get()->executor))
        HN_FAIL(err, HONE_ERR_USAGE, "executor: '%s' is neither own nor libgomp", hn_config_get()->executor);
    if (status == HONE_OK && hn_config_get()->threads > 0)
        hn_parallel_set_threads((int)hn_config_get()->threads);
    hn_log_set_sink(log_to_stderr, NULL, (hn_log_level)hn_config_get()->log_level);
    return status;
}

static bool g_progress_drawn;

void hn_cli_progress(const char *what, double done, double total) {
    if (!isatty(STDERR_FILENO)) return;
    g_progress_drawn = true;
    if (total > 0) {
        int filled = (int)(30 * (done < total ? done / total : 1));
        fprintf(stderr, "\r\033[K%-28.28s [%.*s%*s] %3.0f %%", what, filled,
                "##############################", 30 - filled, "",
                100 * (done < total ? done / total : 1));
    } else {
        fprintf(stderr, "\r\033[K%-28.28s %.0f", what, done);
    }
    fflush(stderr);
}

void hn_cli_progress_end(void) {
    // Only a bar of ours is wiped: the line may be another program's (hone exec).
    if (g_progress_drawn) fprintf(stderr, "\r\033[K");
    g_progress_drawn = false;
}

// A full disk behind stdout must not look like success.
static int finish_output(int exit_code) {
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    hn_keeper_wait(); // what the store is being given; the results are out
    if (written) return exit_code;
    char line[HN_LANG_BYTES];
    fprintf(stderr, "hone: %s\n", hn_lang_text(HN_SAY("cannot write the results to standard output"), line));
    return 5;
}

static int report(const hone_error *err, hone_status status, const hn_command *command) {
    char text[2 * HN_LANG_BYTES], more[128], line[HN_LANG_BYTES];
    hn_cli_progress_end();
    fprintf(stderr, "hone: %s", hn_lang_error(err, text, sizeof text));
    if (status == HONE_ERR_USAGE && command) {
        snprintf(more, sizeof more, HN_SAY("; 'hone help %s' shows its options"), command->name);
        fprintf(stderr, "%s", hn_lang_text(more, line));
    }
    fprintf(stderr, "\n");
    return hone_status_exit_code(status);
}

// Ctrl-C and a scheduler's SIGTERM leave no half-written file; the signal then does what it does.
static void on_end(int number) {
    hn_temporaries_remove();
    raise(number); // default again (SA_RESETHAND), delivered on return
}

static void clean_up_on_signals(void) {
    static const int k_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGXFSZ, SIGPIPE};
    for (size_t i = 0; i < HN_COUNT_OF(k_signals); i++) {
        struct sigaction action = {.sa_handler = on_end, .sa_flags = SA_RESETHAND}, before;
        if (sigaction(k_signals[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(k_signals[i], &action, NULL); // one that is ignored (nohup) stays ignored
    }
}

// --lang holds for help and errors too, so it is read before the command's options are: it may stand
// before the command (then it is taken out) or after it.
static hn_status choose_language(hone_error *err, int *argc, char ***argv) {
    const char *value = NULL;
    for (bool leading = true; leading && *argc > 1;) {
        const char *first = (*argv)[1];
        bool apart = strcmp(first, "--lang") == 0, joined = strncmp(first, "--lang=", 7) == 0;
        leading = apart || joined;
        if (!leading) break;
        if (apart && *argc < 3) HN_FAIL(err, HONE_ERR_USAGE, "'%s' needs a value", first);
        value = apart ? (*argv)[2] : first + 7;
        *argc -= apart ? 2 : 1;
        *argv += apart ? 2 : 1;
    }
    for (int i = 1; i < *argc && strcmp((*argv)[i], "--") != 0; i++) {
        if (strncmp((*argv)[i], "--lang=", 7) == 0) value = (*argv)[i] + 7;
        else if (strcmp((*argv)[i], "--lang") == 0 && i + 1 < *argc) value = (*argv)[++i];
    }
    hn_lang lang;
    if (!value) {
        HN_TRY(hn_config_lang(err, &lang));
    } else if (!hn_lang_named(value, &lang)) {
        HN_FAIL(err, HONE_ERR_USAGE, "lang: '%s' is neither en nor zh", value);
    }
    hn_lang_set(lang);
    return HONE_OK;
}

int main(int argc, char **argv) {
    hone_error err = {0};
    clean_up_on_signals();
    hn_log_set_sink(log_to_stderr, NULL, HN_LOG_WARN);
    hone_status status = hn_config_init(&err);
    if (status == HONE_OK) status = choose_language(&err, &argc, &argv);
    if (status != HONE_OK) return report(&err, status, NULL);
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    const char *name = argv[1];
    bool help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (help && argc < 3) {
        print_usage(stdout);
        return finish_output(0);
    }
    if (strcmp(name, "--version") == 0) name = "version";
    if (help) name = argv[2];
    const hn_command *command = find_command(name);
    if (!command) {
        HN_SET(&err, HONE_ERR_USAGE, "'%s' is no command; 'hone help' lists them", name);
        return report(&err, HONE_ERR_USAGE, NULL);
    }
    for (int i = 2; i < argc && !help && strcmp(argv[i], "--") != 0; i++)
        help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    if (help) {
        g_help_for = command;
        char usage[512], head[HN_LANG_BYTES], summary[HN_LANG_BYTES];
        snprintf(usage, sizeof usage, HN_SAY("usage: hone %s %s"), command->name, command->usage);
        hn_cli_printf("%s\n%s\n\n", hn_lang_text(usage, head), hn_lang_text(command->summary, summary));
    }
    int exit_code = -1;
    status = command->run(&err, argc - 2, argv + 2, &exit_code);
    hn_cli_progress_end();
    if (g_help_shown) return finish_output(0);
    if (finish_output(0) != 0) return 5;
    if (status == HONE_ERR_CHECK && err.text[0] == '\0') return exit_code >= 0 ? exit_code : 1;
    if (status != HONE_OK) return report(&err, status, command);
    return exit_code >= 0 ? exit_code : 0;
}
