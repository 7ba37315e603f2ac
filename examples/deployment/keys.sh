#!/bin/sh
# Certificates and keys of a deployment: makes what is missing in a folder, and changes nothing that is there.
#
#   sh keys.sh FOLDER HOST [NODE...]
#
# ca.key, ca.crt      the authority; keep ca.key away from the servers, nodes need ca.crt
# server.key, .pem    of the SuperLink and the proxy, valid for a year, for HOST, localhost and 127.0.0.1
# NODE, NODE.pub      a node's key; better made on the node itself, then only NODE.pub leaves it
#
# To renew the certificate, remove server.pem and run it again. To give a node another key, remove NODE and NODE.pub.
set -eu
umask 077
[ $# -ge 2 ] || { echo "usage: sh keys.sh FOLDER HOST [NODE...]" >&2; exit 2; }
folder=$1 host=$2
shift 2
mkdir -p "$folder"
cd "$folder"
curve="-newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes"
if [ ! -e ca.key ] && [ ! -e ca.crt ]; then
  openssl req -x509 $curve -days 3650 -subj "/CN=authority of $host" -addext keyUsage=critical,keyCertSign,cRLSign \
    -keyout ca.key -out ca.crt 2>/dev/null
  echo "made ca.key and ca.crt"
fi
if [ ! -e server.pem ]; then
  [ -e server.key ] || openssl ecparam -name secp384r1 -genkey -noout -out server.key
  openssl req -new -key server.key -subj "/CN=$host" -out server.csr
  printf '%s\n' "subjectAltName=DNS:$host,DNS:localhost,IP:127.0.0.1" extendedKeyUsage=serverAuth \
    authorityKeyIdentifier=keyid subjectKeyIdentifier=hash > server.ext
  openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile server.ext \
    -out server.pem 2>/dev/null
  rm -f server.csr server.ext
  echo "made server.pem"
fi
for node in "$@"; do
  [ -e "$node" ] && continue
  ssh-keygen -q -t ecdsa -b 384 -N "" -C "$node" -f "$node"
  echo "made $node and $node.pub: flwr supernode register $folder/$node.pub SUPERLINK --name $node"
done
