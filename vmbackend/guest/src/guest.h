/* The guest kit's one program: init of the initramfs, stage under tini, services and the `run` helper. */
#ifndef GUEST_H
#define GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define KIT "/run/kit"
#define CONFIG_FILE KIT "/config"
#define NEWROOT "/newroot"
#define CONTROL_PORT 10022
#define EVENTS_PORT "org.microvm.events.0"
#define AGENT_PORT "org.qemu.guest_agent.0"
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define EXIT_TIMEOUT 124
#define EXIT_CANNOT_RUN 126
#define EXIT_NOT_FOUND 127

/* util.c */
char *read_file(const char *path, size_t *size); /* malloc'ed and NUL-terminated; NULL with errno */
bool write_file(const char *path, const char *data, size_t size, mode_t mode); /* replaces whatever lies there */
bool write_value(const char *path, const char *value);                       /* into an existing file of /proc or /sys */
bool ensure_dir(const char *path, mode_t mode); /* replaces anything that is no directory */
void sleep_ms(long milliseconds);
long long now_ms(void); /* monotonic */
int make_node(const char *sys_dir, const char *name, mode_t type); /* /dev/NAME from SYS_DIR/NAME/dev */
int find_port(const char *wanted, char *name, size_t size);       /* virtio-serial port -> vportNpM */
void enter_guest(void);    /* into the mount namespace of PID 1, the one the user sees; exits on failure */
void set_oom(const char *adjustment);
void boot_say(const char *format, ...) __attribute__((format(printf, 1, 2))); /* a line of the boot log */
void die(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

/* config.c: NUL-terminated key=value records */
bool config_load(const char *path);
const char *config_next(const char *key, size_t *position); /* start with position 0; NULL after the last */
const char *config_get(const char *key);                   /* the first one, or "" */
size_t config_list(const char *key, char ***values);       /* NULL-terminated array */

/* disks.c */
void mount_disks(void);
/* network.c */
void configure_network(void);
/* user.c */
int become_user(const char *spec); /* 0, or -1 after a line on stderr; sets HOME, USER and LOGNAME where unset */
void base_environment(void);       /* environ = PATH and the machine's configured environment */
void exec_command(char **argv) __attribute__((noreturn));

/* terminal.c: `guest run --tty` */
void terminal_begin_arguments(void); /* asks the other side for the argument block where stdin is a terminal */
void terminal_end_arguments(void);
void terminal_exec(char **argv) __attribute__((noreturn)); /* says that it starts; an empty ARGV is the user's shell */
void terminal_die_of(int number); /* returns where the SSH server could not tell that signal */

/* applets */
int init_main(void);
int stage_main(const char *kit_namespace);
int shell_main(int argc, char **argv);
int run_main(int argc, char **argv);
int control_main(void);
int agent_main(void);
int process_main(void);
int log_main(void);
int finish_main(const char *code, const char *status);
int enter_main(char **argv);

void boot_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
