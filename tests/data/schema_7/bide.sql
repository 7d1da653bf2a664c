BEGIN TRANSACTION;
CREATE TABLE durations (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  sketch TEXT NOT NULL,
  PRIMARY KEY (tenant, kind)
) WITHOUT ROWID;
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL,
  job_id TEXT NOT NULL,
  type TEXT NOT NULL,
  at REAL NOT NULL,
  job TEXT NOT NULL
);
INSERT INTO "events" VALUES(1,'-','01JGGVSD00KMEJ6RFACHAVTVA3','status',1.73573280256150293352e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732802.560716}');
INSERT INTO "events" VALUES(2,'-','01JGGVSD0GN89XE52ZP9BBPATT','status',1.73573280257693171504e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732802.5767405}');
INSERT INTO "events" VALUES(3,'-','01JGGVSD10127ME5AAWVPP004Q','status',1.73573280259292221064e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732802.5926743}');
INSERT INTO "events" VALUES(4,'-','01JGGVSD1DGATKY7VAX7GCE9FB','status',1735732802.60539,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732802.6051576}');
INSERT INTO "events" VALUES(5,'-','01JGGVSD1RHPSWVRR59HB1GKDQ','status',1.7357328026169815063e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":1735732802.6166437}');
INSERT INTO "events" VALUES(6,'-','01JGGVSD00KMEJ6RFACHAVTVA3','status',1.73573280289687943461e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26516","waited":0.3361635208129883}');
INSERT INTO "events" VALUES(7,'-','01JGGVSD0GN89XE52ZP9BBPATT','status',1.73573280310077548028e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26516","waited":0.5240349769592285}');
INSERT INTO "events" VALUES(8,'-','01JGGVSD00KMEJ6RFACHAVTVA3','step',1.73573280317225432396e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26516","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSD00KMEJ6RFACHAVTVA3','step',1.73573280317225432396e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26516","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(10,'-','01JGGVSD00KMEJ6RFACHAVTVA3','step',1.73573280317785477635e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:26516","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(11,'-','01JGGVSD00KMEJ6RFACHAVTVA3','step',1.73573280317785477635e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:26516","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(12,'-','01JGGVSD00KMEJ6RFACHAVTVA3','status',1.73573280318026280403e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.2833833694458008}');
INSERT INTO "events" VALUES(13,'-','01JGGVSD10127ME5AAWVPP004Q','status',1.73573280318026280403e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26516","waited":0.5875885486602783}');
INSERT INTO "events" VALUES(14,'-','01JGGVSD10127ME5AAWVPP004Q','status',1.73573280320502638818e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.02476358413696289}');
INSERT INTO "events" VALUES(15,'-','01JGGVSD1DGATKY7VAX7GCE9FB','status',1735732803.22093,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26516","waited":0.6157724857330322}');
INSERT INTO "events" VALUES(16,'-','01JGGVSD1DGATKY7VAX7GCE9FB','status',1.73573280322353839869e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"0085f89fa77ae167fba8d1e67f2864e9"},"seconds":0.0026082992553710938}');
INSERT INTO "events" VALUES(17,'-','01JGGVSD1RHPSWVRR59HB1GKDQ','status',1.73573280322353839869e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:26516","waited":0.6068947315216064}');
INSERT INTO "events" VALUES(18,'-','01JGGVSD1RHPSWVRR59HB1GKDQ','step',1.73573280322570323939e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:26516","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(19,'-','01JGGVSD1RHPSWVRR59HB1GKDQ','step',1.73573280322570323939e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:26516","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(20,'-','01JGGVSD1RHPSWVRR59HB1GKDQ','step',1.73573280322730493551e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:26516","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(21,'-','01JGGVSD1RHPSWVRR59HB1GKDQ','step',1.73573280322730493551e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:26516","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(22,'-','01JGGVSD1RHPSWVRR59HB1GKDQ','status',1.73573280322892522812e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"seconds":0.005386829376220703}');
INSERT INTO "events" VALUES(23,'-','01JGGVSD0GN89XE52ZP9BBPATT','status',1.73573280350152730948e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"43ba4e90dfe84a9169ee894caf8bf2fd","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.40075182914733887}');
INSERT INTO "events" VALUES(24,'-','01JGGVSDXY3M3BAY4GWY4JA9TC','status',1.73573280352023315425e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.5188408}');
INSERT INTO "events" VALUES(25,'-','01JGGVSDXY3M3BAY4GWY4JA9TC','status',1.73573280352023315425e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26516","waited":0.001392364501953125}');
INSERT INTO "events" VALUES(26,'-','01JGGVSDXY3M3BAY4GWY4JA9TC','status',1.7357328035322387218e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735732974.395991,"nextAttemptAt":1735732974.395991,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"65d36c0d96beb5cd52e09071974b003d"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSDYJ310Z4X2HXZSSD9HQ','status',1.73573280353824090961e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSDYSSED4KH42TXD36720','status',1.73573280354820489888e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSDYSSED4KH42TXD36720','status',1.73573280355760598187e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','','queue',1.73573280356089687352e+09,'{"queue":"other","paused":true}');
INSERT INTO "events" VALUES(31,'-','01JGGVSDZAP61WJTKKJDGJC985','status',1.73573280356280684475e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.562666}');
INSERT INTO "events" VALUES(32,'-','01JGGVSDZNXEE8ZZ6G3XV43YXV','status',1.73573280357390046122e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.5736938}');
INSERT INTO "events" VALUES(33,'-','01JGGVSDZNXEE8ZZ6G3XV43YXV','status',1.73573280357390046122e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26516","waited":0.0002067089080810547}');
INSERT INTO "events" VALUES(34,'-','01JGGVSDZVAC1RYV4KEXJF3CF7','status',1.73573280357993626598e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.5794437}');
INSERT INTO "events" VALUES(35,'-','01JGGVSDZNXEE8ZZ6G3XV43YXV','status',1.73573280357993626598e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26516"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSDZVAC1RYV4KEXJF3CF7','status',1.73573280357993626598e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26516","waited":0.0004925727844238281}');
INSERT INTO "events" VALUES(37,'-','01JGGVSE00AX4R7F0K38BZMFS1','status',1.73573280358966612821e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.5877163}');
INSERT INTO "events" VALUES(38,'-','01JGGVSDZNXEE8ZZ6G3XV43YXV','status',1.73573280358966612821e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26516"}');
INSERT INTO "events" VALUES(39,'-','01JGGVSDZVAC1RYV4KEXJF3CF7','step',1.73573280358966612821e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26516","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(40,'-','01JGGVSDZVAC1RYV4KEXJF3CF7','step',1.73573280358966612821e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26516","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(41,'-','01JGGVSDZNXEE8ZZ6G3XV43YXV','status',1.73573280359458541875e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(42,'-','01JGGVSE00AX4R7F0K38BZMFS1','status',1.73573280359458541875e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26516","waited":0.006869077682495117}');
INSERT INTO "events" VALUES(43,'-','01JGGVSE00AX4R7F0K38BZMFS1','step',1.73573280359917664524e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26516","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSE00AX4R7F0K38BZMFS1','step',1.73573280359917664524e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26516","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(45,'-','01JGGVSE333EJG5D0TKXP5N752','status',1.73573280368376827234e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.6835833}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
, search TEXT) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSD00KMEJ6RFACHAVTVA3','-','{"number": 1}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSD0GN89XE52ZP9BBPATT','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSD10127ME5AAWVPP004Q','-','{"size": 10}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSD1DGATKY7VAX7GCE9FB','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSD1RHPSWVRR59HB1GKDQ','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSDXY3M3BAY4GWY4JA9TC','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSDYJ310Z4X2HXZSSD9HQ','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSDYSSED4KH42TXD36720','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSDZAP61WJTKKJDGJC985','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSDZNXEE8ZZ6G3XV43YXV','-','{"number": 10, "seconds": 60}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSDZVAC1RYV4KEXJF3CF7','-','{"number":10,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSE00AX4R7F0K38BZMFS1','-','{"number":11,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSE333EJG5D0TKXP5N752','-','{"number": 3}',NULL,NULL);
CREATE TABLE jobs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  version INTEGER NOT NULL,
  run INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  labels TEXT,
  run_at REAL,
  due REAL,
  deadline REAL,
  attempt INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  losses INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  owner TEXT,
  lease_until REAL,
  started_at REAL,
  next_attempt_at REAL,
  cancel_asked_at REAL,
  finished_at REAL,
  keep REAL,
  expires_at REAL,
  result TEXT,
  result_file TEXT,
  error TEXT,
  progress TEXT,
  steps TEXT,
  files TEXT,
  parent TEXT,
  children TEXT,
  waiting_for TEXT,
  trace_id TEXT,
  -- 1: due and waiting for a worker; claims read only these rows
  ready INTEGER NOT NULL DEFAULT 0
, lease_seconds REAL, loss_record TEXT, overdue_at REAL);
INSERT INTO "jobs" VALUES(1,'01JGGVSD00KMEJ6RFACHAVTVA3','work','default',1.73573280256071591377e+09,1.73573280318026280403e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280289687943461e+09,NULL,NULL,1.73573280318026280403e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732803.1722543,"finished_at":1735732803.1722543},{"name":"second","status":"DONE","started_at":1735732803.1778548,"finished_at":1735732803.1778548}]',NULL,NULL,NULL,NULL,'0dcd7d432a84f27e87bfada1a05d16e6',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'01JGGVSD0GN89XE52ZP9BBPATT','half','default',1.73573280257674050332e+09,1.73573280350152730948e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280310077548028e+09,NULL,NULL,1.73573280350152730948e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"43ba4e90dfe84a9169ee894caf8bf2fd","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'43ba4e90dfe84a9169ee894caf8bf2fd',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'01JGGVSD10127ME5AAWVPP004Q','paint','default',1.73573280259267425534e+09,1.73573280320502638818e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280318026280403e+09,NULL,NULL,1.73573280320502638818e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSD10127ME5AAWVPP004Q/1.6680b534/picture.bin"}]',NULL,NULL,NULL,'3d3d54eaa0697653bf8d26e5fa0a140b',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(4,'01JGGVSD1DGATKY7VAX7GCE9FB','fail','default',1.73573280260515761374e+09,1.73573280322353839869e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1735732803.22093,NULL,NULL,1.73573280322353839869e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"0085f89fa77ae167fba8d1e67f2864e9"}',NULL,NULL,NULL,NULL,NULL,NULL,'0085f89fa77ae167fba8d1e67f2864e9',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(5,'01JGGVSD1RHPSWVRR59HB1GKDQ','work','default',1.73573280261664366717e+09,1.73573280322892522812e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280322353839869e+09,NULL,NULL,1.73573280322892522812e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732803.2257032,"finished_at":1735732803.2257032},{"name":"second","status":"DONE","started_at":1735732803.227305,"finished_at":1735732803.227305}]',NULL,NULL,NULL,NULL,'381fed04152d3fb935ceb6851fa1d8a4',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(6,'01JGGVSDXY3M3BAY4GWY4JA9TC','heal','default',1.73573280351884078973e+09,1.7357328035322387218e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573297439599108699e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280352023315425e+09,1.73573297439599108699e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"65d36c0d96beb5cd52e09071974b003d"}',NULL,NULL,NULL,NULL,NULL,NULL,'65d36c0d96beb5cd52e09071974b003d',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(7,'01JGGVSDYJ310Z4X2HXZSSD9HQ','work','default',1.73573280353803944585e+09,1.73573280353803944585e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'a78a5ebc83ebf98a99411d72aa837bd1',0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(8,'01JGGVSDYSSED4KH42TXD36720','work','default',1.73573280354559397698e+09,1.73573280355760598187e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280355760598187e+09,1.73573280355760598187e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'ae533b33cbd9ff165008abfd25a21469',0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(9,'01JGGVSDZAP61WJTKKJDGJC985','rest','other',1.73573280356266593932e+09,1.73573280356266593932e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280356266593932e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'54d08de9e13bad698a6d184c4d978451',1,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'01JGGVSDZNXEE8ZZ6G3XV43YXV','family','default',1.73573280357369375231e+09,1.73573280359458541875e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280357390046122e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSDZVAC1RYV4KEXJF3CF7","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSE00AX4R7F0K38BZMFS1","kind":"work","key":"work#2","status":null}]','["01JGGVSDZVAC1RYV4KEXJF3CF7","01JGGVSE00AX4R7F0K38BZMFS1"]','2360206ec75f6da840469bd8524091bf',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(11,'01JGGVSDZVAC1RYV4KEXJF3CF7','work','default',1.7357328035794436932e+09,1.73573280358966612821e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:26516',1.73573283357993626589e+09,1.73573280357993626598e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732803.5896661,"finished_at":1735732803.5896661}]',NULL,'01JGGVSDZNXEE8ZZ6G3XV43YXV',NULL,NULL,'2360206ec75f6da840469bd8524091bf',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(12,'01JGGVSE00AX4R7F0K38BZMFS1','work','default',1.73573280358771634109e+09,1.73573280359917664524e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:26516',1.7357328335945854187e+09,1.73573280359458541875e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732803.5991766,"finished_at":1735732803.5991766}]',NULL,'01JGGVSDZNXEE8ZZ6G3XV43YXV',NULL,NULL,'2360206ec75f6da840469bd8524091bf',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(13,'01JGGVSE333EJG5D0TKXP5N752','work','default',1.73573280368358325953e+09,1.73573280368358325953e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280368358325953e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'c2d0d37f1e74a9e4009bd36247d2a637',1,NULL,NULL,NULL);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSD1RHPSWVRR59HB1GKDQ',1.7357328026169815063e+09);
CREATE TABLE log_state (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "log_state" VALUES('epoch','7eccf186');
INSERT INTO "log_state" VALUES('floor','0');
CREATE TABLE queues (
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  paused INTEGER NOT NULL,
  PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
INSERT INTO "queues" VALUES('-','other',1);
CREATE TABLE search_backfill (after TEXT NOT NULL, last TEXT NOT NULL);
CREATE TABLE search_terms (
  tenant TEXT NOT NULL,
  value TEXT NOT NULL,
  field TEXT NOT NULL, -- label.KEY, step or input.PATH
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  job_id TEXT NOT NULL,
  PRIMARY KEY (tenant, value, field, kind, queue, job_id)
) WITHOUT ROWID;
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSD1RHPSWVRR59HB1GKDQ');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSDYJ310Z4X2HXZSSD9HQ');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSDYSSED4KH42TXD36720');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSD00KMEJ6RFACHAVTVA3');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSD1RHPSWVRR59HB1GKDQ');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSDZVAC1RYV4KEXJF3CF7');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSE00AX4R7F0K38BZMFS1');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSD00KMEJ6RFACHAVTVA3');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSD1RHPSWVRR59HB1GKDQ');
CREATE TABLE steps (
  job_id TEXT NOT NULL,
  name TEXT NOT NULL,
  tenant TEXT NOT NULL,
  result TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID;
INSERT INTO "steps" VALUES('01JGGVSD00KMEJ6RFACHAVTVA3','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280317225432396e+09);
INSERT INTO "steps" VALUES('01JGGVSD00KMEJ6RFACHAVTVA3','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280317785477635e+09);
INSERT INTO "steps" VALUES('01JGGVSD1RHPSWVRR59HB1GKDQ','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280322570323939e+09);
INSERT INTO "steps" VALUES('01JGGVSD1RHPSWVRR59HB1GKDQ','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280322730493551e+09);
INSERT INTO "steps" VALUES('01JGGVSDZVAC1RYV4KEXJF3CF7','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280358966612821e+09);
INSERT INTO "steps" VALUES('01JGGVSE00AX4R7F0K38BZMFS1','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280359917664524e+09);
CREATE TABLE store_id (id TEXT NOT NULL);
INSERT INTO "store_id" VALUES('bc0625e7028bbe518a3f44716ab397aa');
CREATE TABLE tombstones (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE upload_uses (
  upload_id TEXT NOT NULL,
  job_id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  PRIMARY KEY (upload_id, job_id)
) WITHOUT ROWID;
CREATE TABLE uploads (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  replica TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  updated_at REAL NOT NULL,
  expires_at REAL,
  record TEXT NOT NULL,
  -- the job that it creates; a separate column, because it is written once
  submission TEXT
, reserved INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO "uploads" VALUES('01JGGVSCXW7DDH43BN9WT16CBV','-','DONE','host',10,1.73573280250434184074e+09,4.73573280250434207935e+09,'{"id":"01JGGVSCXW7DDH43BN9WT16CBV","way":"tus","name":"file","created_at":1735732802.4928136,"updated_at":1735732802.5043418,"content_type":"application/octet-stream","tenant":"-","status":"DONE","replica":"host","past_service":false,"size":10,"received":10,"promised":null,"expires_at":4735732802.504342,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","detected":"","blob":"uploads/01JGGVSCXW7DDH43BN9WT16CBV/content","chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,0);
INSERT INTO "uploads" VALUES('01JGGVSCYRXG2SFKC92BXD5CQQ','-','UPLOADING','host',10,1.73573280255180406573e+09,4.73573280255164146424e+09,'{"id":"01JGGVSCYRXG2SFKC92BXD5CQQ","way":"tus","name":"file","created_at":1735732802.5204844,"updated_at":1735732802.551804,"content_type":"application/octet-stream","tenant":"-","status":"UPLOADING","replica":"host","past_service":false,"size":20,"received":10,"promised":null,"expires_at":4735732802.551641,"sha256":"","detected":"","blob":null,"chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,10);
CREATE TABLE write_check (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL
);
CREATE INDEX jobs_claim ON jobs (queue, kind, priority DESC, seq) WHERE ready = 1;
CREATE INDEX jobs_due ON jobs (due) WHERE ready = 0 AND due IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX keys_at ON keys (at);
CREATE INDEX keys_job ON keys (job_id);
CREATE INDEX tombstones_at ON tombstones (at);
CREATE INDEX uploads_expiry ON uploads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX uploads_unfinished ON uploads (replica, updated_at) WHERE status = 'UPLOADING';
CREATE INDEX upload_uses_job ON upload_uses (job_id);
CREATE INDEX events_job ON events (tenant, job_id, id);
CREATE INDEX events_tenant ON events (tenant, id);
CREATE INDEX events_kept ON events (at) WHERE type IN ('deleted', 'queue');
CREATE INDEX jobs_facets ON jobs (tenant, status, kind, queue, id);
CREATE INDEX jobs_code ON jobs (tenant, json_extract(error, '$.code'), status, kind, queue, id) WHERE error IS NOT NULL;
CREATE INDEX jobs_longest ON jobs (tenant, status, kind, queue, finished_at - started_at, id) WHERE finished_at - started_at >= 0.01;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',45);
COMMIT;
