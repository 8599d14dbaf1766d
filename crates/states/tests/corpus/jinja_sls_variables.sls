{{ sls }}: test.nop
"path {{ slspath }}": test.nop
"tpl {{ tpldir }}": test.nop
"file {{ tplfile }}": test.nop
include:
  - inc.variables
