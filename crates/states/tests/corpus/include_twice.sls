include:
  - inc.one
  - inc.nested
  - inc.one
own: test.nop
