# CPack runs this script before it makes the packages. Adds to each package the copyright and the
# changelog that Debian's policy demands, and compresses the manual pages.
set(ENV{LC_ALL} C)
set(seconds "$ENV{SOURCE_DATE_EPOCH}")
if(NOT seconds)
  message(FATAL_ERROR "Set SOURCE_DATE_EPOCH to the time of the commit, as tools/release.sh does")
endif()
execute_process(COMMAND date --utc --rfc-email --date=@${seconds} OUTPUT_VARIABLE date
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)

file(READ ${CPACK_RESOURCE_FILE_LICENSE} licence)
string(REGEX MATCH "Copyright \\(c\\) ([^\n]*)" holder "${licence}")
set(holder "${CMAKE_MATCH_1}")
string(REGEX REPLACE "^.*Copyright[^\n]*\n\n" "" licence "${licence}")
string(REGEX REPLACE "\n\n" "\n.\n" licence "${licence}")
string(STRIP "${licence}" licence)
string(REGEX REPLACE "\n" "\n " licence "${licence}")
set(copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: shardwise

Files: *
Copyright: ${holder}
License: BSD-3-Clause

License: BSD-3-Clause
 ${licence}
")
set(changelog "shardwise (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Packages of version ${CPACK_PACKAGE_VERSION}; CHANGELOG.md in shardwise-doc says what is new.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(usr ${CPACK_TEMPORARY_DIRECTORY}/${component}${CPACK_PACKAGING_INSTALL_PREFIX})
  set(documents ${usr}/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  file(WRITE ${documents}/copyright "${copyright}")
  file(WRITE ${documents}/changelog.Debian "${changelog}")
  file(GLOB_RECURSE to_compress ${usr}/share/man/*.1)
  execute_process(COMMAND gzip -9 --no-name ${documents}/changelog.Debian ${to_compress}
                  COMMAND_ERROR_IS_FATAL ANY)
  # The same bytes at each build, whatever the umask and the hour are.
  execute_process(COMMAND chmod -R u+rwX,go+rX,go-w ${CPACK_TEMPORARY_DIRECTORY}/${component}
                  COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND find ${CPACK_TEMPORARY_DIRECTORY}/${component} -exec
                          touch --no-dereference --date=@${seconds} {} +
                  COMMAND_ERROR_IS_FATAL ANY)
endforeach()
