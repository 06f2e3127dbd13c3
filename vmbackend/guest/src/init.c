/* PID 1 of the initramfs. Builds the machine's root and executes tini.
 *
 * The result is two mount namespaces. The kit's has the initramfs as its root: the supervisor, the control
 * SSH and the agent run there, unaffected by what the machine's user removes or mounts. PID 1 and all
 * the user's processes run in the other, whose root is the overlay; there /run/kit is a read-only view of the kit.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#define SOFT_OPEN_FILES 65536
#define HARD_OPEN_FILES 524288

static void must_mount(const char *type, const char *target, unsigned long flags, const char *options)
{
	if (mount(type, target, type, flags, options))
		boot_fail("cannot mount %s: %s", target, strerror(errno));
}

static void device(const char *path, unsigned major, unsigned minor)
{
	mknod(path, S_IFCHR | 0666, makedev(major, minor));
	chmod(path, 0666);
}

static void kit_devices(void)
{
	device("/dev/null", 1, 3);
	device("/dev/zero", 1, 5);
	device("/dev/random", 1, 8);
	device("/dev/urandom", 1, 9);
	device("/dev/tty", 5, 0);
	device("/dev/hwrng", 10, 183);
	mkdir("/dev/pts", 0755);
	must_mount("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "mode=620,gid=5,ptmxmode=666");
	if (symlink("pts/ptmx", "/dev/ptmx") && errno != EEXIST)
		boot_fail("cannot make /dev/ptmx: %s", strerror(errno));
}

/* The list is in load order, written when the kit is built; the custom kernel has no modules. */
static void load_modules(void)
{
	char path[256], *list = read_file("/modules/order", NULL);
	for (char *name = list ? strtok(list, "\n") : NULL; name; name = strtok(NULL, "\n")) {
		snprintf(path, sizeof path, "/modules/%s", name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST))
			dprintf(STDERR_FILENO, "kit: module %s: %s\n", name, strerror(errno));
		close(fd);
		unlink(path);
	}
	free(list);
}

/* Watches of large trees need more than the kernel allows small machines; each takes memory only when it is used. */
static void raise_watch_limits(void)
{
	write_value("/proc/sys/fs/inotify/max_user_watches", "1048576");
	write_value("/proc/sys/fs/inotify/max_user_instances", "1024");
	write_value("/proc/sys/fs/inotify/max_queued_events", "131072");
}

/* Every process inherits these. Of open files the soft limit is what servers ask for that do not raise it themselves (64,000
 * and 65,535 are usual): there are programs that close every descriptor up to it, which must not take long. The locked
 * memory of the kernel, 8 MiB, is that of containers. */
static void raise_process_limits(void)
{
	const struct rlimit files = {.rlim_cur = SOFT_OPEN_FILES, .rlim_max = HARD_OPEN_FILES};
	const struct rlimit processes = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
	if (setrlimit(RLIMIT_NOFILE, &files) || setrlimit(RLIMIT_NPROC, &processes))
		log_boot("cannot raise the limits of processes: %s", strerror(errno));
}

/* Images take these for granted, as container runtimes set them: every user may listen on every port and send pings. */
static void set_container_settings(void)
{
	write_value("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	write_value("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
	write_value("/proc/sys/vm/max_map_count", "262144");
}

/* Systems set these at their start, in place of which the kit is: in /tmp and the like, no user makes another one's file theirs
 * by a link, nor leads root's programs through one. */
static void protect_links(void)
{
	write_value("/proc/sys/fs/protected_hardlinks", "1");
	write_value("/proc/sys/fs/protected_symlinks", "1");
}

static void read_config(void)
{
	size_t size = 0;
	char *raw = read_fw_cfg(&size);
	if (!raw || !write_file(CONFIG_FILE, raw, size, 0600))
		boot_fail("no configuration from the host");
	free(raw);
	if (!config_load(CONFIG_FILE))
		boot_fail("the host's configuration is cut off");
}

static void bind(int fd, const char *target, bool read_only)
{
	char source[64];
	snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
	if (mount(source, target, NULL, MS_BIND, NULL) ||
	    (read_only && mount(NULL, target, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL)))
		boot_fail("cannot bind mount %s for the machine: %s", target, strerror(errno));
}

static void guest_devices(int pts)
{
	must_mount("devtmpfs", "/dev", MS_NOSUID, "mode=755");
	ensure_dir("/dev/pts", 0755);
	bind(pts, "/dev/pts", false);
	chmod("/dev/ptmx", 0666);
	ensure_dir("/dev/shm", 01777);
	must_mount("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
	if (symlink("/proc/self/fd", "/dev/fd") || symlink("fd/0", "/dev/stdin") || symlink("fd/1", "/dev/stdout") ||
	    symlink("fd/2", "/dev/stderr"))
		return; /* exists */
}

/* Inside a chroot of the new root, so that an image's absolute symlinks resolve in the image. */
static void prepare_root(int kit, int data, int pts)
{
	static const struct {
		const char *path;
		mode_t mode;
	} wanted[] = {{"/proc", 0555}, {"/sys", 0555}, {"/dev", 0755}, {"/etc", 0755}, {"/run", 0755},
		      {"/tmp", 01777}, {"/root", 0700}, {KIT, 0755}};
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
		if (!ensure_dir(wanted[i].path, wanted[i].mode))
			boot_fail("cannot make %s: %s", wanted[i].path, strerror(errno));
	must_mount("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	must_mount("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	mount("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	guest_devices(pts);
	bind(kit, KIT, true);
	bind(data, KIT "/data", true);
	if (!write_names())
		log_boot("cannot write all names: %s", strerror(errno));
	make_directories();
	if (*config_get("drop_logs"))
		remove_logs();
}

static void build_root(void)
{
	int initramfs = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), pts = open("/dev/pts", O_PATH | O_CLOEXEC);
	int kit = open(KIT, O_PATH | O_CLOEXEC), data = open(KIT "/data", O_PATH | O_CLOEXEC);
	if (chdir(NEWROOT) || chroot("."))
		boot_fail("cannot enter the new root: %s", strerror(errno));
	prepare_root(kit, data, pts);
	if (fchdir(initramfs) || chroot("."))
		boot_fail("cannot leave the new root: %s", strerror(errno));
}

static void exec_tini(void)
{
	char number[16];
	int kit_namespace = open("/proc/self/ns/mnt", O_RDONLY); /* inherited by the stage, which goes back into it */
	snprintf(number, sizeof number, "%d", kit_namespace);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || chdir(NEWROOT) ||
	    mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		boot_fail("cannot switch to the new root: %s", strerror(errno));
	char *argv[] = {"tini", "--", KIT "/bin/guest", "stage", number, NULL};
	char *environment[] = {"PATH=" DEFAULT_PATH, NULL};
	execve(KIT "/bin/tini", argv, environment);
	boot_fail("cannot start tini: %s", strerror(errno));
}

int init_main(void)
{
	umask(022);
	must_mount("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	must_mount("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	mount("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	raise_watch_limits();
	raise_process_limits();
	set_container_settings();
	protect_links();
	kit_devices();
	load_modules();
	seed_random();
	struct utsname kernel;
	uname(&kernel);
	log_boot("kernel %s %s is up", kernel.sysname, kernel.release);
	read_config();
	if (*config_get("template")) {
		await_load();
		log_boot("kernel %s %s is up, loaded from a template", kernel.sysname, kernel.release);
	} else {
		start_generation();
	}
	if (!write_keys() || (*config_get("ssh") && !write_ssh_keys()))
		boot_fail("cannot write the keys: %s", strerror(errno));
	mount_disks();
	log_boot("image and writable disk are mounted");
	if (!configure_network())
		boot_fail("cannot set the network up: %s", strerror(errno));
	log_boot("network is up: %s", config_get("address"));
	build_root();
	log_boot("starting services of %s", config_get("hostname"));
	exec_tini();
	return 1;
}
