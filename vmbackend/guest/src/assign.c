/* The assignment of a machine that was booted as nobody's: its services run, and no program. What a boot does with its
 * configuration is done here with the one of the message; image, disk and address are those that it has. */
#include "guest.h"
#include "message.h"

#include <errno.h>

static bool write_places(void)
{
	if (!write_names())
		return false;
	make_directories();
	if (*config_get("drop_logs"))
		remove_logs();
	return true;
}

/* Once: afterwards its configuration is that of somebody. */
static bool require_unassigned(void)
{
	errno = EALREADY;
	return *config_get("unassigned");
}

static bool take_names(void)
{
	return within_root(write_places);
}

static bool take_keys(void)
{
	return write_keys() && (!*config_get("ssh") || write_ssh_keys());
}

bool assign_machine(int fd)
{
	static const struct item ITEMS[] = {
		{"unassigned", require_unassigned}, {"entropy", take_entropy}, {"clock", take_clock},
		{"configuration", take_configuration}, {"names", take_names}, {"keys", take_keys},
		{"generation", take_generation}, {"programs", programs_prepare},
	};
	if (!message_take_items(fd, "assigned", ITEMS, sizeof ITEMS / sizeof *ITEMS))
		return false;
	log_boot("assigned: starting programs of %s", config_get("hostname"));
	return true;
}
