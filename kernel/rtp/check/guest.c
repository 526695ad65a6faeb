// SPDX-License-Identifier: GPL-2.0
/*
 * The check as the first process of a machine: what a distribution would have set up.
 *
 * Mounts, loopback, dummy0, the modules in /lib/modules; at the end a line `guest: end` and the
 * power off. As any other process none of it is done.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

static void load(const char *path)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return;
	if (syscall(SYS_finit_module, file, "", 0))
		printf("# %s: not loaded\n", path);
	close(file);
}

static void up(const char *name, const char *address)
{
	struct ifreq ask = { };
	struct sockaddr_in *at = (struct sockaddr_in *)&ask.ifr_addr;
	int socket4 = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(ask.ifr_name, IFNAMSIZ, "%s", name);
	at->sin_family = AF_INET;
	inet_pton(AF_INET, address, &at->sin_addr);
	ioctl(socket4, SIOCSIFADDR, &ask);
	if (!ioctl(socket4, SIOCGIFFLAGS, &ask)) {
		ask.ifr_flags |= IFF_UP;
		ioctl(socket4, SIOCSIFFLAGS, &ask);
	}
	close(socket4);
}

void guest_begin(void)
{
	if (getpid() != 1)
		return;
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mkdir("/dev", 0755);
	mkdir("/tmp", 0755);
	mount("proc", "/proc", "proc", 0, "");
	mount("sys", "/sys", "sysfs", 0, "");
	mount("dev", "/dev", "devtmpfs", 0, "");
	mount("tmp", "/tmp", "tmpfs", 0, "");
	mount("debug", "/sys/kernel/debug", "debugfs", 0, "");
	/* The kernel opens the console for its first process only if it was there already. */
	if (fcntl(1, F_GETFD) < 0 && open("/dev/console", O_RDWR) == 0) {
		dup(0);
		dup(0);
	}
	load("/lib/modules/dummy.ko");
	load("/lib/modules/pagewire_rtp.ko");
	up("lo", "127.0.0.1");
	up("dummy0", "10.9.0.1");
}

void guest_end(int failed)
{
	if (getpid() != 1)
		exit(failed ? 1 : 0);
	printf("guest: end\n");
	fflush(stdout);
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}
