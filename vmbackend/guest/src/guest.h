/* The guest kit's one program: init of the initramfs, stage under tini, services and the `run` helper. */
#ifndef GUEST_H
#define GUEST_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct passwd;
struct pollfd;

#define KIT "/run/kit"
#define CONFIG_FILE KIT "/config"
#define NEWROOT "/newroot"
#define CONTROL_PORT 10022
#define EVENTS_PORT "org.microvm.events.0"
#define REQUESTS_PORT "org.microvm.requests.0"
#define AGENT_PORT "org.qemu.guest_agent.0"
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define HOST_KEY KIT "/host_key"
#define GENERATION_FILE KIT "/generation" /* another UUID after each start and each load */
#define UUID_FILE KIT "/uuid" /* of a machine whose memory was loaded */
#define STAGE_FILE KIT "/stage" /* the stage's process id */
#define READY_FILE KIT "/ready" /* exists once `ready` was sent */
#define UNCLEAN_FILE KIT "/unclean" /* exists until partial files of a run that did not end in order were searched for */
#define SERVICES KIT "/service/"
#define LOG_READING "reading" /* in a log's directory: the logger reads its pipe and ignores SIGTERM */
#define LOG_ERRORS "errors"   /* beside it: the named pipe for standard error, where the log has records */
#define OLD_LOGS 3
#define LOG_NAME_SIZE (PATH_MAX + 8)
#define WORKLOAD_PREFIX "w-" /* keeps a workload's service name apart from the kit's own */
#define SSH_SERVER_NAME "user-ssh"
#define SSH_PORT 22
#define SSH_KEYS "/ssh/.ssh/authorized_keys" /* the users' server runs while this exists */
#define CONFIG_MAX (256 << 10) /* bytes; the same limit as in bootconfig.py */
#define SERVICES_WAIT_MS 15000
#define INIT_WAIT_MS 30000
#define AGENT_WAIT_MS 500
#define LOWEST_PRIORITY 19 /* niceness */
#define STOPPED_FILE "stopped" /* in a workload's directory: it is not to be started again */
#define EXIT_FILE "exit"       /* beside it: the code of its last end */
#define RESTARTS_FILE "restarts"
#define WAITING_FILE "waiting" /* the finish script has written the end, and waits for the restart */
#define SERVICE_NAME_SIZE 80 /* workload names have at most 64 characters */
#define SERVICE_PATH_SIZE 256     /* paths below SERVICES */
#define KEY_SIZE 128         /* configuration keys of workloads */
#define TEXT(value) #value
#define TEXT_OF(value) TEXT(value)
#define EXIT_TIMEOUT 124
#define EXIT_CANNOT_RUN 126
#define EXIT_NOT_FOUND 127

/* util.c */
char *read_file(const char *path, size_t *size); /* malloc'ed and NUL-terminated; NULL with errno */
bool write_file(const char *path, const char *data, size_t size, mode_t mode); /* replaces what exists at PATH */
bool write_value(const char *path, const char *value);                       /* into an existing file of /proc or /sys */
bool ensure_dir(const char *path, mode_t mode); /* replaces anything that is not a directory */
void sleep_ms(long milliseconds);
long long now_ms(void);   /* monotonic */
long long clock_ms(void); /* the time of day */
int shorter_wait(int one, int other); /* of two waits in milliseconds; negative: no wait */
int make_node(const char *sys_dir, const char *name, mode_t type); /* /dev/NAME from SYS_DIR/NAME/dev */
int find_port(const char *wanted, char *name, size_t size);       /* virtio-serial port -> vportNpM */
char *read_input(size_t *size); /* standard input to its end, CONFIG_MAX bytes at most; malloc'ed; exits on failure */
pid_t enter_kit(void); /* enters the kit's mount namespace, from the user's as well; the stage's process; exits on failure */
void enter_guest(void);    /* enters the mount namespace of PID 1, the user's; exits on failure */
int open_guest_root(void); /* of the user's file system, from the kit's namespace; -1 with errno */
void set_oom(const char *adjustment);
void die(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

/* boot.c */
void log_boot(const char *format, ...) __attribute__((format(printf, 1, 2))); /* a line of the boot log */
void boot_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2))); /* powers the machine off */

/* config.c: NUL-terminated key=value records */
bool config_load(const char *path);
const char *config_next(const char *key, size_t *position); /* start with position 0; NULL after the last */
const char *config_get(const char *key);                   /* the first one, or "" */
size_t config_list(const char *key, char ***values);       /* NULL-terminated array */

/* fwcfg.c */
char *read_fw_cfg(size_t *size); /* malloc'ed; NULL where there is none or it is too large */
/* disks.c */
void mount_disks(void);
long long disk_bytes(const char *serial); /* as the kernel knows it at present; -1: there is no such disk */
/* directories.c */
void make_directories(void); /* those of the configuration, within the present root */
/* network.c */
bool configure_network(void); /* these three: false with errno */
bool disable_network(void);
bool set_mac(const char *text);
/* names.c: from the configuration; false with errno */
bool write_keys(void);     /* of the control plane's server */
bool write_ssh_keys(void); /* the users' */
bool write_names(void);    /* within the present root, and the host name */
bool within_root(bool (*work)(void)); /* calls it with the machine's file system as the root */
/* dmi.c */
bool show_loaded_uuid(void); /* that of UUID_FILE, if there is one, to the machine's programs; false with errno */
/* shown.c */
bool show_instead(const char *path, const char *name, const char *data, size_t size, mode_t mode); /* false with errno */
/* generation.c */
bool write_generation(const char *generation); /* false with errno */
void start_generation(void); /* a new one */
/* random.c */
void seed_random(void);
bool reseed_random(const char *hex);
/* load.c */
void await_load(void); /* of a boot template: waits for the machine that it becomes, and takes its configuration */
/* requests.c: requests of the host */
int open_requests(void); /* -1: the machine has no such port */
enum handled { NOTHING_READ, HANDLED, ASSIGNED };
enum handled handle_requests(int fd);
/* assign.c */
bool assign_machine(int fd); /* as the message asks; false if anything failed, which was answered */
/* renew.c */
void renew_machine(int fd); /* the same; the user's programs stay frozen then */
/* tcp.c */
bool process_listens(pid_t pid, unsigned port);
/* abort.c */
bool abort_connections(void); /* of every process, but for loopback; false with errno */
/* user.c */
/* Also enters a directory, without a requested one USUAL, HOME or /. 0, or -1 after a line on stderr; sets HOME, USER and
 * LOGNAME where unset. */
int become_user_in(const char *spec, const char *requested, const char *usual);
const char *image_user(void);      /* its USER, else root */
void base_environment(void);       /* environ = PATH, the machine's configured environment and HOSTNAME */
void exec_command(char **argv) __attribute__((noreturn));
void exec_shell(const struct passwd *user, const char *command); /* returns if the image has no shell */

/* shell.c */
void restore_dev_null(void); /* in the user's file system */

/* cgroup.c: a group for each command and terminal; KIND begins the names of those that are swept together */
void cgroup_prepare(void);          /* finds the hierarchy in the present mount namespace; once */
int cgroup_root(void);              /* of the hierarchy; -1 */
int cgroup_create(char kind);       /* a descriptor of a new group, -1 where the kernel or the machine has none */
pid_t cgroup_fork(int cgroup);      /* as fork, the child in the group; it must execute a program soon */
bool cgroup_kill(int cgroup);       /* every process in it, in whatever session; false: none of it could be */
void cgroup_remove(int cgroup);     /* closes it; with processes, or groups of its own, it stays until a sweep */
void cgroup_sweep(char kind);       /* removes groups without processes */
void cgroup_outlive(int cgroup);    /* its program has ended by itself: what runs in it is left alone from now on */
void cgroup_kill_former(char kind); /* every process in groups of processes that were killed, but for those that outlive them */
bool cgroup_is_empty(int cgroup);   /* no process is in it, nor in a group in it */
bool cgroup_has(int cgroup, pid_t pid);
/* freeze.c */
bool freeze_programs(void); /* all of the user's; false with errno */
void thaw_programs(void);
bool hold_programs(void);    /* freezes them until they are released, or for a time; false with errno: they run */
bool release_programs(void); /* false: they were not held any more */
int programs_release_late(void); /* milliseconds until the next call, or -1 */

/* ask.c: `guest run --ask`; one in each process */
#define ASK_PROGRAMS 6 /* that are answered at a time */
#define ASK_SOURCES (2 + ASK_PROGRAMS)
void ask_open(const char *folder); /* exits on failure */
void ask_detach(void);             /* in the command's process */
void ask_start(int cgroup);        /* in the parent, afterwards */
size_t ask_sources(struct pollfd *sources); /* ASK_SOURCES of them, or none */
void ask_handle(const struct pollfd *sources);
void ask_close(void); /* removes the socket */

/* services.c */
bool agent_ready(void); /* it has opened its port, or the machine has none */
void send_event(const char *line);
bool control_service(const char *service, const char *command); /* commands of runsv's control pipe; false: no supervisor */
bool service_is(const char *service, const char *wanted); /* run, finish or down */
pid_t service_process(const char *service); /* its program's, or its finish script's; 0: none */
bool services_any(bool (*condition)(const char *service)); /* of the main program and the workloads; ends at the first */
const char *service_file(const char *service, const char *file); /* a file in its directory; valid until the next call */
bool service_has(const char *service, const char *file);
pid_t fork_service(void); /* as fork, the child in a group that freezes with the user's programs */
pid_t start_supervisor(int niceness);      /* a process group of its own, which its children share */
void reset_supervisor_priority(pid_t supervisor); /* niceness 0 for the whole group */
/* program.c: the main program and the workloads */
bool programs_prepare(void); /* those of the configuration; false with errno */
bool programs_wanted(void);
bool programs_start(bool late); /* true once every supervisor got its command; called until then */
bool programs_started(void); /* each has been started once, or could not be */
void programs_stop(void); /* these three: of every service that there is */
bool programs_run(void);
bool logs_run(void);
bool write_workload_service(const char *service, bool down); /* `down`: its supervisor waits for a command */
const char *workload_name(bool of_log); /* derived from the working directory: that of its service or of its log */
const char *workload_get(const char *name, const char *field, const char *otherwise);
/* trees.c */
void empty_folder(const char *path); /* of what can be removed, to any depth; nothing else may change it at that time */
/* ignore.c */
bool is_ignored(char *const *patterns, const char *path, bool folder); /* PATH: relative to the root of the patterns */
/* logger.c */
void remove_logs(void);
/* logfile.c */
struct log_file {
	const char *path;
	int fd;          /* -1: not open */
	long long retry; /* not opened again before */
	bool stamped;    /* it has records, each on a line of its own */
	bool cut;        /* its last record is incomplete */
};
void log_name(const char *path, int age, char *name); /* of the file rotated AGE times; NAME has LOG_NAME_SIZE bytes */
/* Whole records, or any output. What cannot be written (disk full, directory removed) is dropped; the program continues. */
void log_append(struct log_file *log, const char *data, size_t size);
/* own_names.c */
#define ASK_PREFIX ".ask-"
bool is_partial(const char *name);
bool is_ask_folder(const char *name);
bool is_own_name(const char *name);

/* partials.c */
void mark_running(void);    /* on the writable disk, while it is mounted */
void mark_ended(void);      /* nothing is written any more */
void remove_partials(void); /* in a child process, if the former run of the machine did not end in order */
/* servers.c */
int servers_maintain(void); /* starts or stops them as configured; returns milliseconds until the next call, or -1 */
void server_ended(pid_t child);
bool servers_ready(void); /* every enabled server listens */
bool servers_restart(void); /* ends all connections; false with errno unless the control server listens again */
bool user_ssh_listens(void);
/* relay.c */
void run_relay(void) __attribute__((noreturn)); /* in a process of its own */
/* ssh.c */
bool write_user_keys(const char *lines, size_t size);
/* sessions.c */
bool end_sessions(void);
/* power.c */
void end_machine(int how) __attribute__((noreturn));
int open_buttons(struct pollfd *buttons, int capacity);
bool power_pressed(int fd);

/* applets */
int init_main(void);
int stage_main(const char *kit_namespace);
int shell_main(int argc, char **argv);
int login_main(int argc, char **argv);
int run_main(int argc, char **argv);
int walk_main(int argc, char **argv);
int list_main(char **argv);
int attributes_main(char **argv);
int locked_main(char **argv);
int agent_main(void);
int process_main(void);
int log_main(void);
int stop_main(void);
int workload_main(void);
int workload_log_main(void);
int workload_finish_main(const char *code, const char *status);
int workloads_main(int argc, char **argv);
int ssh_main(const char *wanted);
int attach_main(char **argv);
int askpass_main(const char *question);
int hold_main(char **argv);
int watch_main(char **argv);
int finish_main(const char *code, const char *status);
int enter_main(char **argv);
int connections_main(const char *port);

#endif
