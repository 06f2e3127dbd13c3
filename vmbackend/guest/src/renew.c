/* The renewal of a machine in which programs ran, and whose memory was loaded: as another machine, or as the same one at a later
 * time (`kept`). The user's programs are frozen first and go on only after the answer. */
#define _GNU_SOURCE
#include "guest.h"
#include "message.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANDOM_UUID "/proc/sys/kernel/random/uuid"
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

static const char *const MACHINE_IDS[] = {"/etc/machine-id", "/var/lib/dbus/machine-id"};

static bool is_kept(void)
{
	return message_get("kept");
}

/* Without the hyphens it is a machine id. */
static char *make_id(bool hyphens)
{
	char *made = read_file(RANDOM_UUID, NULL);
	size_t used = 0;
	for (const char *letter = made; made && *letter; letter++)
		if (hyphens || *letter != '-')
			made[used++] = *letter;
	if (made)
		made[used] = 0;
	return made;
}

/* Of an image that has one; the second is a link to the first as a rule. */
static bool write_machine_ids(void)
{
	struct stat info;
	char *id = make_id(false);
	bool written = id;
	for (size_t i = 0; written && i < sizeof MACHINE_IDS / sizeof *MACHINE_IDS; i++)
		if (!lstat(MACHINE_IDS[i], &info) && S_ISREG(info.st_mode) && info.st_size)
			written = write_file(MACHINE_IDS[i], id, strlen(id), 0444);
	free(id);
	return written;
}

static bool take_boot_id(void)
{
	char *id = make_id(true);
	bool shown = id && show_instead(BOOT_ID, "boot-id", id, strlen(id), 0444);
	free(id);
	return shown;
}

static bool take_identity(void)
{
	return take_boot_id() && (is_kept() || (take_uuid() && show_loaded_uuid() && within_root(write_machine_ids)));
}

static bool take_link(void)
{
	return disable_network() && take_mac();
}

static bool take_names(void)
{
	return within_root(write_names);
}

static bool take_keys(void)
{
	bool users = *config_get("ssh") ? write_ssh_keys() : !unlink(SSH_KEYS) || errno == ENOENT;
	return users && write_keys() && servers_restart();
}

void renew_machine(int fd)
{
	static const struct item ITEMS[] = {
		{"freeze", freeze_programs}, {"entropy", take_entropy}, {"clock", take_clock},
		{"configuration", take_configuration}, {"mac", take_link}, {"connections", abort_connections},
		{"address", configure_network}, {"names", take_names}, {"identity", take_identity},
		{"keys", take_keys}, {"generation", take_generation},
	};
	if (!message_take_items(fd, "renewed", ITEMS, sizeof ITEMS / sizeof *ITEMS))
		return;
	thaw_programs();
	if (!access(READY_FILE, F_OK))
		send_event("ready\n"); /* as it was; the host waits for it as after any start */
	log_boot("loaded from a snapshot as %s", config_get("hostname"));
}
