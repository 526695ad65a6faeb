// SPDX-License-Identifier: GPL-2.0
/*
 * pagewire_rtp: sends files as RTP, or as plain UDP, inside the kernel. The device and its calls.
 *
 * The character device /dev/pagewire_rtp is of mode 0660; a udev rule gives it to the group
 * pagewire. A process can do with it only what it could do with its own descriptors: read a file
 * it has open for reading, send on a socket it has connected. Beyond that the device offers paced
 * sending by the kernel, which has limits (user.c).
 *
 * Cost of PAGEWIRE_RTP_SEND for each call: 88 bytes in and 16 to 22 out, a reference to the file
 * and the socket; everything else is for each packet (send.c).
 *
 * Sources: data-paths, table 1-C (krtpsendfile, krtpmsend and their like); RFC 3550. A device and
 * not system calls: a module cannot add those.
 */
#include <linux/compat.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "engine.h"

/* Sends what a checked request asks for, and says in it how far that came. */
static int pwr_send(struct pagewire_rtp_send *send, const struct pagewire_rtp_packet *plan,
		    struct socket *socket, struct file *file)
{
	struct pwr_run run;
	int error;

	pwr_run_open(&run, socket, send, plan);
	if (file)
		error = pwr_send_file(&run, file, send->offset, send->length);
	else
		error = pwr_send_memory(&run, send->offset, send->length);

	send->sent_packets = run.sent_packets;
	send->sent_bytes = run.sent_bytes;
	if (send->header == PAGEWIRE_RTP_HEADER_ENGINE) {
		send->sequence += run.sent_packets;
		if (!plan)
			send->timestamp += (u32)run.sent_packets * send->timestamp_step;
	}
	return error;
}

/* A request with its descriptors looked up; the plan last, since it is the dearest. */
static int pwr_request(struct pagewire_rtp_send *send)
{
	struct pagewire_rtp_packet *plan;
	struct file *file = NULL;
	struct socket *socket;
	int error;

	error = pwr_request_check(send);
	if (error)
		return error;
	if (send->source == PAGEWIRE_RTP_FROM_FILE) {
		file = pwr_request_file(send);
		if (IS_ERR(file))
			return PTR_ERR(file);
	}
	socket = pwr_request_socket(send);
	if (IS_ERR(socket)) {
		error = PTR_ERR(socket);
		goto put_file;
	}
	plan = pwr_request_plan(send);
	if (IS_ERR(plan)) {
		error = PTR_ERR(plan);
		goto put_socket;
	}
	error = pwr_send(send, plan, socket, file);
	kvfree(plan);
put_socket:
	sockfd_put(socket);
put_file:
	if (file)
		fput(file);
	return error;
}

/* Only what a call changes goes back: for a call of one packet the copy is a good part of it. */
static int pwr_answer(const struct pagewire_rtp_send *send,
		      struct pagewire_rtp_send __user *argument)
{
	if (put_user(send->sent_packets, &argument->sent_packets) ||
	    put_user(send->sent_bytes, &argument->sent_bytes))
		return -EFAULT;
	if (send->header == PAGEWIRE_RTP_HEADER_ENGINE &&
	    (put_user(send->sequence, &argument->sequence) ||
	     put_user(send->timestamp, &argument->timestamp)))
		return -EFAULT;
	return 0;
}

static long pwr_ioctl_send(struct pagewire_rtp_send __user *argument)
{
	struct pagewire_rtp_send send;
	int error;

	if (copy_from_user(&send, argument, sizeof(send)))
		return -EFAULT;
	error = pwr_request(&send);
	if (error)
		return error;
	return pwr_answer(&send, argument);
}

static long pwr_ioctl(struct file *device, unsigned int command, unsigned long argument)
{
	if (command == PAGEWIRE_RTP_SEND)
		return pwr_ioctl_send((struct pagewire_rtp_send __user *)argument);
	return pwr_session_ioctl(device->private_data, command, (void __user *)argument);
}

static __poll_t pwr_poll(struct file *device, struct poll_table_struct *table)
{
	return pwr_session_poll(device->private_data, device, table);
}

static int pwr_open(struct inode *inode, struct file *device)
{
	struct pwr_session *session = pwr_session_open();

	if (!session)
		return -ENOMEM;
	device->private_data = session;
	return nonseekable_open(inode, device);
}

static int pwr_release(struct inode *inode, struct file *device)
{
	pwr_session_close(device->private_data);
	return 0;
}

/* The owner keeps the module while a descriptor is open, and so while a session can run. */
static const struct file_operations pwr_operations = {
	.owner = THIS_MODULE,
	.open = pwr_open,
	.release = pwr_release,
	.poll = pwr_poll,
	.unlocked_ioctl = pwr_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice pwr_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "pagewire_rtp",
	.fops = &pwr_operations,
	.mode = 0660,
};

static int __init pwr_init(void)
{
	int error;

	error = pwr_self_test();
	if (error)
		return error;
	error = pwr_pacing_init();
	if (error)
		return error;
	error = misc_register(&pwr_device);
	if (error)
		pwr_pacing_exit();
	return error;
}

static void __exit pwr_exit(void)
{
	misc_deregister(&pwr_device);
	pwr_pacing_exit();
	pwr_users_exit();
}

module_init(pwr_init);
module_exit(pwr_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("sends files as RTP by page reference, at once or paced");
MODULE_VERSION("0.1.0");
