// SPDX-License-Identifier: GPL-2.0
/*
 * A file system that hangs: one of our own (FUSE) that never answers a read. A session whose file
 * is there keeps its worker for as long; close(2) must return all the same, sessions of other files
 * must go on whatever the number of those that wait, and all must end when the file system does.
 *
 * Source: include/uapi/linux/fuse.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/fuse.h>

#include "check.h"

#define MS		1000000ull
#define FOLDER		"/tmp/hung"
#define FILE_BYTES	1048576
#define FILE_NODE	2
#define WAITING		300	/* more than a queue of workers runs at a time by default, 256 */
#define PER_USER	"400"
#define REQUEST_BYTES	(FUSE_MIN_READ_BUFFER * 2)	/* at least its least, and a write's */

static void answer(int fuse, uint64_t unique, int error, const void *body, size_t bytes)
{
	uint8_t reply[sizeof(struct fuse_out_header) + 256];
	struct fuse_out_header header = { .len = sizeof(header) + bytes, .error = -error,
					  .unique = unique };

	memcpy(reply, &header, sizeof(header));
	if (bytes)
		memcpy(reply + sizeof(header), body, bytes);
	if (write(fuse, reply, header.len) < 0 && errno != ENOENT)
		_exit(1);
}

static struct fuse_attr attributes(uint64_t node)
{
	return (struct fuse_attr){
		.ino = node,
		.mode = node == FILE_NODE ? S_IFREG | 0444 : S_IFDIR | 0755,
		.nlink = 1,
		.size = node == FILE_NODE ? FILE_BYTES : 0,
	};
}

/* One request; reads are those that are not answered. */
static void serve(int fuse, const struct fuse_in_header *request)
{
	struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31,
				      .max_write = 4096, .max_readahead = 65536 };
	struct fuse_entry_out entry = { .nodeid = FILE_NODE, .attr_valid = 3600,
					.entry_valid = 3600, .attr = attributes(FILE_NODE) };
	struct fuse_attr_out attr = { .attr_valid = 3600, .attr = attributes(request->nodeid) };
	struct fuse_open_out open = { .fh = 1 };

	switch (request->opcode) {
	case FUSE_INIT:
		answer(fuse, request->unique, 0, &init, sizeof(init));
		break;
	case FUSE_LOOKUP:
		answer(fuse, request->unique, 0, &entry, sizeof(entry));
		break;
	case FUSE_GETATTR:
		answer(fuse, request->unique, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
		answer(fuse, request->unique, 0, &open, sizeof(open));
		break;
	case FUSE_READ:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
		break;
	default:
		answer(fuse, request->unique, EOPNOTSUPP, NULL, 0);
	}
}

/* Mounts it and serves it from a process of its own; 0 where there is no FUSE. */
static pid_t mount_hung(void)
{
	static uint64_t request[REQUEST_BYTES / sizeof(uint64_t)];
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[96];
	pid_t child;

	if (fuse < 0)
		return 0;
	mkdir(FOLDER, 0755);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	if (mount("hung", FOLDER, "fuse", MS_NOSUID | MS_NODEV, options)) {
		close(fuse);
		return 0;
	}
	child = fork();
	if (child < 0)
		fatal("fork");
	while (!child) {
		if (read(fuse, request, sizeof(request)) < 0) {
			if (errno == EINTR || errno == EAGAIN || errno == ENOENT)
				continue;
			_exit(0);
		}
		serve(fuse, (const void *)request);
	}
	close(fuse);
	return child;
}

static int start_with(int file, uint32_t packets)
{
	struct pagewire_rtp_start start = { .send = request_file(0, packets * 1316, 1316),
					    .interval_ns = MS, .wake_packets = 1 };
	int device = open("/dev/pagewire_rtp", O_RDWR | O_CLOEXEC);

	start.send.file_fd = file;
	if (device < 0 || ioctl(device, PAGEWIRE_RTP_START, &start))
		fatal("a session");
	return device;
}

/* True when a child has ended in time. */
static bool ends(pid_t child, uint64_t limit_ns)
{
	uint64_t end = now_ns() + limit_ns;

	while (waitpid(child, NULL, WNOHANG) != child) {
		if (now_ns() > end)
			return false;
		sleep_ns(5 * MS);
	}
	return true;
}

static bool no_session_is_left(uint64_t limit_ns)
{
	uint64_t end = now_ns() + limit_ns;

	while (number_in(PARAMETERS "sessions", "") > 0) {
		if (now_ns() > end)
			return false;
		sleep_ns(5 * MS);
	}
	return true;
}

/* Returns who closes, if that has not come back from it. */
static pid_t check_close(int file)
{
	pid_t child = fork();

	if (child < 0)
		fatal("fork");
	if (!child) {
		int device = start_with(file, 10);

		sleep_ns(100 * MS);
		close(device);
		_exit(0);
	}
	if (ok(ends(child, 10000 * MS), "close(2) returns while the file system hangs"))
		child = 0;
	ok(number_in(PARAMETERS "sessions", "") == 1, "and the session is counted as long");
	return child;
}

static void check_many_wait(int file, int *waiting)
{
	struct pollfd wait = { .events = POLLIN };
	int index, healthy;

	for (index = 0; index < WAITING; index++)
		waiting[index] = start_with(file, 10);
	sleep_ns(300 * MS);
	healthy = start_with(world.file, 10);
	wait.fd = healthy;
	ok(poll(&wait, 1, 10000) == 1 && wait.revents == (POLLIN | POLLHUP),
	   "%d sessions that wait hold up no other", WAITING);
	close(healthy);
	world_drain(world.receiver);
}

void check_hung(void)
{
	int waiting[WAITING], file, index, failed = 0;
	char former[16];
	pid_t server, closer;

	if (getpid() != 1) {
		tap_skip("needs a machine of its own", "a file system that hangs");
		return;
	}
	server = mount_hung();
	if (!server) {
		tap_skip("no FUSE in this kernel", "a file system that hangs");
		return;
	}
	file = open(FOLDER "/file", O_RDONLY | O_CLOEXEC);
	if (file < 0)
		fatal(FOLDER);
	snprintf(former, sizeof(former), "%ld", number_in(PARAMETERS "sessions_per_user", ""));
	write_file(PARAMETERS "sessions_per_user", PER_USER);
	closer = check_close(file);
	check_many_wait(file, waiting);

	/* With its server the file system ends, and so does what waits for it. */
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	for (index = 0; index < WAITING; index++) {
		struct pollfd wait = { .fd = waiting[index], .events = POLLIN };

		failed += poll(&wait, 1, 10000) == 1 && wait.revents & POLLERR;
		close(waiting[index]);
	}
	ok(failed == WAITING, "those that waited fail when the file system ends: %d of %d", failed,
	   WAITING);
	if (closer)
		waitpid(closer, NULL, 0);
	ok(no_session_is_left(10000 * MS), "and no session is left");
	write_file(PARAMETERS "sessions_per_user", former);
	close(file);
	umount2(FOLDER, MNT_DETACH);
	rmdir(FOLDER);
}
