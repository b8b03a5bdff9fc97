#!/usr/bin/env bash
# Prepares a manylinux_2_28 container (AlmaLinux 8) for cibuildwheel, once for all wheels.
#
#   tools/wheel/before_all.sh PREFIX     builds the libraries into PREFIX
set -euo pipefail
# Perl configures OpenSSL, and nasm assembles libjpeg-turbo's vector code.
dnf --assumeyes --quiet install nasm perl-core openssl pkgconf-pkg-config
exec "$(dirname "${BASH_SOURCE[0]}")/build_libraries.sh" "$1"
