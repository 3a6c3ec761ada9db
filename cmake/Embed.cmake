# Style and script of the HTML report as constants of a source file, with the SHA-256 by which the
# page permits them. The scripts share one scope and run in the order given here.
#
# As a function it adds the file to a target; run by `cmake -P` it writes it.
function(ttrace_embed_page target)
  set(folder ${PROJECT_SOURCE_DIR}/src/report/html)
  set(style ${folder}/style.css)
  set(scripts data words state tree map depth table drawer start)
  list(TRANSFORM scripts PREPEND ${folder}/script/)
  list(TRANSFORM scripts APPEND .js)
  set(output ${PROJECT_BINARY_DIR}/generated/html_assets.cc)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DSTYLE=${style} "-DSCRIPTS=${scripts}"
      -P ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake
    DEPENDS ${style} ${scripts} ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()

# Compilers promise literals of 65,536 characters; one is cut by characters, so these are ASCII.
function(append_constant name text)
  string(LENGTH "${text}" length)
  set(code "const std::string_view ${name} =")
  set(begin 0)
  while(begin LESS length)
    string(SUBSTRING "${text}" ${begin} 8000 piece)
    string(APPEND code "\n    R\"page(${piece})page\"")
    math(EXPR begin "${begin} + 8000")
  endwhile()
  string(SHA256 digest "${text}")
  string(APPEND code ";\nconst std::string_view ${name}Sha256 = \"${digest}\";\n")
  file(APPEND ${OUTPUT} "${code}")
endfunction()

function(check_ascii path text)
  string(REGEX MATCH "[^\n\t -~]" found "${text}")
  if(NOT found STREQUAL "")
    message(FATAL_ERROR "${path}: holds '${found}', which is not ASCII: write it as an escape")
  endif()
  if(text MATCHES "\\)page\"|</(script|style)")
    message(FATAL_ERROR "${path}: holds what ends its literal or its element")
  endif()
endfunction()

file(READ ${STYLE} style)
check_ascii(${STYLE} "${style}")
set(script "'use strict';\n(() => {\n")
foreach(path IN LISTS SCRIPTS)
  file(READ ${path} text)
  check_ascii(${path} "${text}")
  string(APPEND script "${text}")
endforeach()
string(APPEND script "})();\n")
file(WRITE ${OUTPUT} "#include \"src/report/html/assets.h\"\n\nnamespace ttrace {\n\n")
append_constant(kHtmlStyle "${style}")
append_constant(kHtmlScript "${script}")
file(APPEND ${OUTPUT} "\n}  // namespace ttrace\n")
