#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Opens a sealed EPUB with nothing of ours and compares every resource with the source.

reader.py SEALED SOURCE PASSPHRASE [ROOT.pem]

Python's zipfile, zlib, json and ElementTree; AES by the `cryptography` package if it is installed,
else by the openssl program; signatures by the openssl program. Prints a line of counts and ends
with 0, or says what is wrong and ends with 1.

Sources: Readium LCP 1.0.4; EPUB 3.3 §4.2; W3C XML Encryption §5.2.
"""
import base64
import hashlib
import json
import os
import posixpath
import subprocess
import sys
import tempfile
import urllib.parse
import xml.etree.ElementTree as ET
import zipfile
import zlib

OCF = "{urn:oasis:names:tc:opendocument:xmlns:container}"
ENC = "{http://www.w3.org/2001/04/xmlenc#}"
DS = "{http://www.w3.org/2000/09/xmldsig#}"
COMP = "{http://www.idpf.org/2016/encryption#compression}"
OPF = "{http://www.idpf.org/2007/opf}"
AES = "http://www.w3.org/2001/04/xmlenc#aes256-cbc"
OBFUSCATIONS = {"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"}
OURS = {"META-INF/encryption.xml", "META-INF/license.lcpl"}


def need(holds, what):
    if not holds:
        sys.exit("reader.py: " + what)


def run(*command, data=None):
    return subprocess.run(command, input=data, capture_output=True)


def decipher(key, data):
    need(len(data) >= 32 and len(data) % 16 == 0, "ciphertext of %d bytes" % len(data))
    iv, blocks = data[:16], data[16:]
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        decryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
        plain = decryptor.update(blocks) + decryptor.finalize()
    except ImportError:
        options = ("-nopad", "-K", key.hex(), "-iv", iv.hex())
        done = run("openssl", "enc", "-d", "-aes-256-cbc", *options, data=blocks)
        need(done.returncode == 0, "openssl enc: " + done.stderr.decode())
        plain = done.stdout
    need(1 <= plain[-1] <= 16, "padding of %d" % plain[-1])
    # PKCS#7 demands more than W3C; ours is both.
    need(plain.endswith(bytes([plain[-1]]) * plain[-1]), "padding that is not PKCS#7")
    return plain[: -plain[-1]]


def verify_signature(licence, root):
    signature = licence["signature"]
    unsigned = {name: value for name, value in licence.items() if name != "signature"}
    canonical = json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    value = base64.b64decode(signature["value"])
    if signature["algorithm"].endswith("#ecdsa-sha256"):
        half = len(value) // 2
        value = b"".join(integer(part) for part in (value[:half], value[half:]))
        value = b"\x30" + bytes([len(value)]) + value
    with tempfile.TemporaryDirectory() as folder:
        certificate, public, sig = (os.path.join(folder, name) for name in ("c", "p", "s"))
        der = base64.b64decode(signature["certificate"])
        done = run("openssl", "x509", "-inform", "DER", "-pubkey", "-out", certificate, data=der)
        need(done.returncode == 0, "openssl x509: " + done.stderr.decode())
        text = open(certificate).read()
        end = text.index("-----END PUBLIC KEY-----") + len("-----END PUBLIC KEY-----\n")
        open(public, "w").write(text[:end])
        open(sig, "wb").write(value)
        command = ("openssl", "dgst", "-sha256", "-verify", public, "-signature", sig)
        done = run(*command, data=canonical.encode())
        need(done.returncode == 0, "signature: " + (done.stdout + done.stderr).decode())
        if root:
            done = run("openssl", "verify", "-CAfile", root, certificate)
            need(done.returncode == 0, "certificate: " + (done.stdout + done.stderr).decode())


def integer(part):
    part = part.lstrip(b"\0") or b"\0"
    if part[0] & 0x80:
        part = b"\0" + part
    return b"\x02" + bytes([len(part)]) + part


def clear_names(book):
    """Returns the entries that must not be enciphered (LCP 1.0.4 §2.1)."""
    clear = {"mimetype"} | {name for name in book.namelist() if name.startswith("META-INF/")}
    container = ET.fromstring(book.read("META-INF/container.xml"))
    for rootfile in container.iter(OCF + "rootfile"):
        path = rootfile.get("full-path")
        clear.add(path)
        package = ET.fromstring(book.read(path))
        metas = package.iter(OPF + "meta")
        covers = {meta.get("content") for meta in metas if meta.get("name") == "cover"}
        for item in package.iter(OPF + "item"):
            properties = (item.get("properties") or "").split()
            is_ncx = item.get("media-type") == "application/x-dtbncx+xml"
            is_image = item.get("media-type").startswith("image/")
            is_cover = item.get("id") in covers and is_image
            if "nav" in properties or "cover-image" in properties or is_ncx or is_cover:
                href = urllib.parse.unquote(item.get("href"))
                folder = posixpath.dirname(path)
                clear.add(posixpath.normpath(posixpath.join(folder, href)))
    return clear


def obfuscated(document):
    """Returns the algorithm of each obfuscated font, by name."""
    found = {}
    for data in document.findall(ENC + "EncryptedData"):
        algorithm = data.find(ENC + "EncryptionMethod").get("Algorithm")
        if algorithm in OBFUSCATIONS:
            uri = data.find(ENC + "CipherData").find(ENC + "CipherReference").get("URI")
            found[urllib.parse.unquote(uri)] = algorithm
    return found


def main(sealed_path, source_path, passphrase, root=None):
    sealed, source = zipfile.ZipFile(sealed_path), zipfile.ZipFile(source_path)
    first = sealed.infolist()[0]
    need((first.filename, first.compress_type) == ("mimetype", 0), "mimetype: not first, stored")
    begin = open(sealed_path, "rb").read(58)[30:]
    need(begin == b"mimetypeapplication/epub+zip", "mimetype's bytes")
    need(sealed.testzip() is None, "a checksum is wrong")
    for info in sealed.infolist():
        need(not info.flag_bits & 8, info.filename + ": a data descriptor")

    licence = json.loads(sealed.read("META-INF/license.lcpl"))
    verify_signature(licence, root)
    encryption = licence["encryption"]
    need(encryption["profile"] == "http://readium.org/lcp/basic-profile", "profile")
    need(encryption["content_key"]["algorithm"] == AES, "content key's algorithm")
    relations = {link["rel"] for link in licence["links"]}
    need({"hint", "publication"} <= relations, "links")
    user_key = hashlib.sha256(passphrase.encode()).digest()
    check = decipher(user_key, base64.b64decode(encryption["user_key"]["key_check"]))
    need(check == licence["id"].encode(), "key check")
    encrypted = base64.b64decode(encryption["content_key"]["encrypted_value"])
    content_key = decipher(user_key, encrypted)
    need(len(content_key) == 32, "content key of %d bytes" % len(content_key))

    inside = {}
    document = ET.fromstring(sealed.read("META-INF/encryption.xml"))
    for data in document.findall(ENC + "EncryptedData"):
        algorithm = data.find(ENC + "EncryptionMethod").get("Algorithm")
        if algorithm in OBFUSCATIONS:
            continue
        need(algorithm == AES, "algorithm")
        retrieval = data.find(DS + "KeyInfo").find(DS + "RetrievalMethod")
        need(retrieval.get("URI") == "license.lcpl#/encryption/content_key", "retrieval URI")
        kind = "http://readium.org/2014/01/lcp#EncryptedContentKey"
        need(retrieval.get("Type") == kind, "type")
        uri = data.find(ENC + "CipherData").find(ENC + "CipherReference").get("URI")
        properties = data.find(ENC + "EncryptionProperties").find(ENC + "EncryptionProperty")
        compression = properties.find(COMP + "Compression")
        name = urllib.parse.unquote(uri)
        need(name not in inside, name + " twice in encryption.xml")
        inside[name] = int(compression.get("Method")), int(compression.get("OriginalLength"))

    names = {info.filename for info in source.infolist() if not info.is_dir()}
    fonts = {}
    if "META-INF/encryption.xml" in names:
        fonts = obfuscated(ET.fromstring(source.read("META-INF/encryption.xml")))
    need(obfuscated(document) == fonts, "obfuscated fonts: %r" % obfuscated(document))
    names -= OURS
    need(set(sealed.namelist()) == names | OURS, "names: %r" % (set(sealed.namelist()) ^ names))
    protected = names - clear_names(source) - set(fonts)
    need(set(inside) == protected, "clear list: %r" % (set(inside) ^ protected))
    deflated = 0
    ivs = set()
    for name in sorted(names):
        expected, found = source.read(name), sealed.read(name)
        if name in inside:
            method, length = inside[name]
            info = sealed.getinfo(name)
            need(info.compress_type == 0, name + ": ciphertext is not stored")
            ivs.add(found[:16])
            found = decipher(content_key, found)
            if method == 8:
                deflated += 1
                inflate = zlib.decompressobj(-15)
                found = inflate.decompress(found) + inflate.flush()
                need(inflate.eof and not inflate.unused_data, name + ": deflate stream")
            need(len(found) == length, name + ": OriginalLength")
        elif name == "mimetype":
            expected = b"application/epub+zip"
        need(found == expected, name + " differs")
    need(len(ivs) == len(inside), "an IV twice")
    clear = len(names) - len(inside)
    print("%d sealed, %d of them deflated, %d clear" % (len(inside), deflated, clear))


main(*sys.argv[1:])
