run true:
  cmd.run:
    - name: 'true'
run false:
  cmd.run:
    - name: 'false'
after false:
  test.nop:
    - onfail:
      - cmd: run false
on true:
  test.nop:
    - onchanges:
      - cmd: run true
