/* A driver of the memory balloon in place of the kernel's: root of a guest may write one.
 *
 *   balloon [SIZE]   takes pages away and gives them back, in turn and without end: its own, and ones that no machine has. At each
 *                    turn it says that the balloon has another size, or always this one, in pages.
 *
 * It prints a line when the host has taken the first pages.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ADDRESS "0000:00:07.0"
#define DEVICE "/sys/bus/pci/devices/" ADDRESS
#define PAGE 4096
#define OWN_PAGES 512
#define PAGES (OWN_PAGES + 8)
#define ENTRIES 16
#define INFLATE 0
#define DEFLATE 1

enum { COMMON = 1, NOTIFY = 2, SETTINGS = 4, KINDS = 5 };
enum { SELECT_FEATURES = 8, FEATURES = 12, STATUS = 20, SELECT = 22, SIZE = 24, ENABLE = 28, NOTIFY_AT = 30, DESCRIPTORS = 32,
       AVAILABLE = 40, USED = 48 };
#define READY (1 | 2 | 8 | 4)

struct descriptor {
	uint64_t address;
	uint32_t length;
	uint16_t flags, next;
};

struct queue {
	struct descriptor descriptors[ENTRIES];
	uint16_t available_flags, available, ring[ENTRIES];
	_Alignas(1024) volatile uint16_t used_flags;
	volatile uint16_t used;
};

static volatile uint8_t *places[KINDS];
static uint32_t notify_step;
static const uint32_t wild[] = {0, 0xa0, 0xf0, 0xfee00, 0xfffff, 0x7fffffff, 0x80000000, 0xffffffff};

static int fail(const char *what)
{
	perror(what);
	exit(1);
}

static void *map_file(const char *path)
{
	struct stat info;
	int fd = open(path, O_RDWR | O_SYNC);
	if (fd < 0 || fstat(fd, &info))
		fail(path);
	void *made = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return made == MAP_FAILED ? (void *)(intptr_t)fail("mmap") : made;
}

static void *make_pages(size_t count)
{
	uint8_t *made = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (made == MAP_FAILED || mlock(made, count * PAGE))
		fail("memory");
	memset(made, 1, count * PAGE);
	return made;
}

static uint64_t frame_of(const void *page)
{
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY);
	if (fd < 0 || pread(fd, &entry, sizeof entry, (off_t)((uintptr_t)page / PAGE * sizeof entry)) != sizeof entry)
		fail("pagemap");
	close(fd);
	entry &= (1ull << 55) - 1;
	return entry ? entry : (uint64_t)fail("no frame");
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		fail(path);
	close(fd);
}

static void find_places(void)
{
	uint8_t config[256] = {0}, command = 6;
	char path[100];
	int fd = open(DEVICE "/config", O_RDWR);
	if (fd < 0 || pwrite(fd, &command, 1, 4) != 1 || pread(fd, config, sizeof config, 0) <= 64)
		fail("config");
	close(fd);
	for (uint8_t at = config[0x34]; at; at = config[at + 1]) {
		uint8_t kind = config[at + 3];
		uint32_t offset;
		if (config[at] != 9 || kind >= KINDS || places[kind])
			continue;
		snprintf(path, sizeof path, DEVICE "/resource%d", config[at + 4]);
		memcpy(&offset, config + at + 8, sizeof offset);
		places[kind] = (uint8_t *)map_file(path) + offset;
		if (kind == NOTIFY)
			memcpy(&notify_step, config + at + 16, sizeof notify_step);
	}
}

static void put8(int at, uint8_t value) { places[COMMON][at] = value; }
static void put16(int at, uint16_t value) { *(volatile uint16_t *)(places[COMMON] + at) = value; }
static void put32(int at, uint32_t value) { *(volatile uint32_t *)(places[COMMON] + at) = value; }

static void put64(int at, uint64_t value)
{
	put32(at, (uint32_t)value);
	put32(at + 4, (uint32_t)(value >> 32));
}

static struct queue *make_queue(uint16_t number)
{
	struct queue *queue = make_pages(1);
	uint64_t physical = frame_of(queue) * PAGE;
	memset(queue, 0, sizeof *queue);
	put16(SELECT, number);
	put16(SIZE, ENTRIES);
	put64(DESCRIPTORS, physical);
	put64(AVAILABLE, physical + offsetof(struct queue, available_flags));
	put64(USED, physical + offsetof(struct queue, used_flags));
	put16(ENABLE, 1);
	return queue;
}

static void send(struct queue *queue, uint16_t number, const uint32_t *frames)
{
	queue->descriptors[0] = (struct descriptor){.address = frame_of(frames) * PAGE, .length = PAGES * sizeof *frames};
	queue->ring[queue->available % ENTRIES] = 0;
	__sync_synchronize();
	queue->available++;
	__sync_synchronize();
	put16(SELECT, number);
	uint16_t place = *(volatile uint16_t *)(places[COMMON] + NOTIFY_AT);
	*(volatile uint16_t *)(places[NOTIFY] + place * notify_step) = number;
	while (queue->used != queue->available)
		usleep(100);
}

int main(int argc, char **argv)
{
	uint8_t *own = make_pages(OWN_PAGES);
	uint32_t *frames = make_pages(1), turn = 0;
	write_text(DEVICE "/driver/unbind", ADDRESS);
	find_places();
	if (!places[COMMON] || !places[NOTIFY] || !places[SETTINGS])
		return 1;
	put8(STATUS, 0);
	put8(STATUS, 1 | 2);
	put32(SELECT_FEATURES, 0);
	put32(FEATURES, 0);
	put32(SELECT_FEATURES, 1);
	put32(FEATURES, 1);
	put8(STATUS, 1 | 2 | 8);
	struct queue *inflate = make_queue(INFLATE), *deflate = make_queue(DEFLATE);
	put8(STATUS, READY);
	for (size_t i = 0; i < PAGES; i++)
		frames[i] = i < OWN_PAGES ? (uint32_t)frame_of(own + i * PAGE) : wild[i - OWN_PAGES];
	const uint32_t sizes[] = {OWN_PAGES, 0, 1 << 14, 192 << 8};
	for (;; turn++) {
		memset(own, (int)turn, OWN_PAGES * PAGE);
		send(inflate, INFLATE, frames);
		uint32_t size = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : sizes[turn % (sizeof sizes / sizeof *sizes)];
		*(volatile uint32_t *)(places[SETTINGS] + 4) = size;
		send(deflate, DEFLATE, frames);
		if (!turn && printf("drives the balloon\n") > 0)
			fflush(stdout);
		usleep(5000);
	}
}
